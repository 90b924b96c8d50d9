//! The numbers of users. A static program has no other way to ask than to read the file.

use super::outside;
use anyhow::{Context as _, bail};
use memtide_linux::files::input;
use memtide_linux::fs::Root;
use memtide_loop::options::User;

/// The largest list of users, in bytes.
const USERS: u64 = 4 << 20;

/// The number of `user`.
///
/// # Errors
/// There is none of that name, or the list cannot be read.
pub fn number(root: &Root, user: &User) -> anyhow::Result<u32> {
    if let Some(number) = user.number() {
        return Ok(number);
    }
    let path = root.path("etc/passwd");
    let file = input::regular(&path).with_context(|| outside::path(&path))?;
    // Names of people are in it, too, in whatever encoding.
    let users = input::whole(file, Vec::new(), USERS).with_context(|| outside::path(&path))?;
    let number = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let same = fields.next() == Some(user.text().as_bytes());
        let number = same.then(|| fields.nth(1))?;
        std::str::from_utf8(number?).ok()?.parse::<u32>().ok()
    };
    match users.split(|byte| *byte == b'\n').find_map(number) {
        Some(number) => Ok(number),
        None => bail!(
            "user {user}: not in {}; make it, or give its number in quotes",
            outside::path(&path)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_number_or_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let users = b"root:x:0:0::/:/bin/sh\nm:x:9:9:M\xfcller:/:/bin/sh\n\
            redis:x:107:7::/:/bin/sh\nred:x:what:0::/:/bin/sh\n";
        std::fs::write(folder.path().join("etc/passwd"), users).unwrap();
        let root = Root::new(folder.path());
        let of = |user: &str| number(&root, &user.parse().unwrap());
        assert_eq!(of("redis").unwrap(), 107);
        assert_eq!(of("77").unwrap(), 77);
        for user in ["redi", "red", "4294967295", "-1"] {
            let said = of(user).unwrap_err().to_string();
            assert!(said.starts_with(&format!("user {user}: not in ")), "{said}");
        }
    }
}
