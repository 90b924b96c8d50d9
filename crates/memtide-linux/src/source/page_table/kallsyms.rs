//! Addresses of the running kernel's symbols, from `/proc/kallsyms`.
//!
//! A line is `address type name`, and for a module's symbol the module follows.
//! The kernel makes the text while it is read, symbol by symbol, and that is
//! slow: so reading ends as soon as everything wanted was seen. To a reader
//! without `CAP_SYSLOG`, or with `kernel.kptr_restrict` = 2, every address is
//! zero.

use std::io::{self, BufRead};

/// The address of each of `wanted`; `None` for what is not there. Zero where
/// the kernel hides addresses.
pub fn addresses<const N: usize>(
    mut text: impl BufRead,
    wanted: [&str; N],
) -> io::Result<[Option<u64>; N]> {
    let mut found = [None; N];
    let mut line = Vec::with_capacity(256);
    while found.contains(&None) {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some((address, name)) = split(&line) else {
            continue;
        };
        if let Some(index) = wanted.iter().position(|w| w.as_bytes() == name) {
            let digits = std::str::from_utf8(address).ok();
            found[index] = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        }
    }
    Ok(found)
}

/// The address and the name of a symbol of the kernel itself; modules' lines
/// are `None`.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (address, rest) = (line.get(..16)?, line.get(16..)?);
    let name = rest.get(3..)?;
    (!name.contains(&b'\t')).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff8300f940 D init_task
ffffffffc0001000 t init_task\t[strange]
ffffffffc0002000 t physical_mask\t[strange]
";

    #[test]
    fn a_symbol_is_its_whole_name_and_not_a_modules() {
        let found = addresses(TEXT, ["init_task", "init", "physical_mask", "_text"]).unwrap();
        assert_eq!(
            found,
            [
                Some(0xffff_ffff_8300_f940),
                None,
                None,
                Some(0xffff_ffff_8100_0000)
            ]
        );
    }

    #[test]
    fn reading_ends_when_all_is_found() {
        struct Once(bool);
        impl io::Read for Once {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(!std::mem::replace(&mut self.0, true), "read on");
                buffer[..TEXT.len()].copy_from_slice(TEXT);
                Ok(TEXT.len())
            }
        }
        let text = io::BufReader::new(Once(false));
        assert_eq!(
            addresses(text, ["_text"]).unwrap(),
            [Some(0xffff_ffff_8100_0000)]
        );
    }

    #[test]
    fn hidden_addresses_are_zero() {
        let text = b"0000000000000000 D init_task\n";
        assert_eq!(addresses(&text[..], ["init_task"]).unwrap(), [Some(0)]);
    }
}
