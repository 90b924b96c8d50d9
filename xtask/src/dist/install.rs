//! The Debian package, installed and removed by dpkg in a guest that has nothing else.
//!
//! dpkg and what it calls are this machine's, if it is a Debian.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::lab;

/// What dpkg calls, and itself.
const PROGRAMS: [&str; 8] = [
    "dpkg",
    "dpkg-deb",
    "dpkg-query",
    "dpkg-split",
    "ldconfig",
    "start-stop-daemon",
    "tar",
    "rm",
];

/// What is tried. `set -e` ends it at whatever does not hold.
const SCRIPT: &str = r#"
set -e
export PATH=/usr/bin:/usr/sbin:/bin:/sbin
# The image's own, which is not what is tried.
rm /bin/memtide
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/log /etc/dpkg
touch /var/lib/dpkg/status /var/lib/dpkg/available
dpkg --install /bin/PACKAGE
dpkg --status memtide | grep '^Status: install ok installed$'
test "$(command -v memtide)" = /usr/bin/memtide
memtide --version | grep ' VERSION$'
memtide topology
memtide sim list
for page in memtide memtide-tier memtide-pager-run; do
    zcat /usr/share/man/man1/$page.1.gz | grep -q '^\.TH'
done
grep -q memtide /usr/share/bash-completion/completions/memtide
grep -q memtide /usr/share/zsh/vendor-completions/_memtide
grep -q memtide /usr/share/fish/vendor_completions.d/memtide.fish
memtide generate completion bash | cmp - /usr/share/bash-completion/completions/memtide
memtide sim explain /usr/share/memtide/scenarios/phases.toml
test -s /usr/lib/memtide/libmemtide_pager_preload.so
test -s /usr/share/doc/memtide/THIRD-PARTY-LICENSES.txt.gz
# What a killed run left changed goes back before the program does.
mkdir -p -m 700 /run/memtide
dpkg --remove memtide
test ! -e /usr/bin/memtide
test ! -e /usr/share/man/man1/memtide.1.gz
test ! -e /usr/lib/memtide
test ! -e /usr/share/memtide
"#;

/// Fails unless the package can be installed, works, and is gone when it is removed.
pub fn try_package(package: &Path, version: &str) -> Result<()> {
    let name = package.file_name().context("a package without a name")?;
    let script = SCRIPT
        .replace("PACKAGE", &name.to_string_lossy())
        .replace("VERSION", version);
    let programs = PROGRAMS.iter().map(|program| {
        let places =
            ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(|at| Path::new(at).join(program));
        let found = places.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("{program} is missing: packages are tried on Debian only"))
    });
    let mut files: Vec<PathBuf> = programs.collect::<Result<_>>()?;
    files.push(package.to_owned());
    eprintln!("dist: trying {} in a guest", name.display());
    let status = lab::run(&lab::Arguments::command(script, files))?;
    ensure!(
        status == 0,
        "{}: not as promised, see above",
        name.display()
    );
    Ok(())
}
