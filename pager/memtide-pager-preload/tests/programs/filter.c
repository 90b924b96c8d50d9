/* Adds up the pages' numbers of a file, behind a filter of system calls (seccomp).
 *
 *     filter FILE refuse|kill
 *
 * Memory files are refused, or end the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int n, char **v) {
    if (n != 3) return 2;
    unsigned action = strcmp(v[2], "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 77;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 77;
    struct stat s;
    int f = open(v[1], O_RDONLY);
    if (f < 0 || fstat(f, &s)) return 2;
    unsigned char *at = mmap(0, s.st_size, PROT_READ, MAP_PRIVATE, f, 0);
    if (at == MAP_FAILED) return 2;
    unsigned long sum = 0, number;
    for (long i = 0; i < s.st_size; i += 4096) {
        memcpy(&number, at + i, sizeof number);
        sum += number;
    }
    printf("%lu\n", sum);
    return 0;
}
