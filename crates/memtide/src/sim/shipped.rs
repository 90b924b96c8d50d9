//! The scenarios and machines that are part of the program, so that a name works anywhere.

/// A file of the repository's `scenarios/`: its path from there, and its text.
pub struct Shipped {
    /// `pghot-mode1.toml`, `machines/zen5-cxl.toml`.
    pub path: &'static str,
    /// What the file holds.
    pub text: &'static str,
    /// About how long a run takes on two processors, in seconds; 0 for machines.
    pub seconds: u32,
}

macro_rules! shipped {
    ($($path:literal $seconds:literal,)*) => {
        /// Every one of them.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            path: $path,
            text: include_str!(concat!("../../../../scenarios/", $path)),
            seconds: $seconds,
        },)*];
    };
}

shipped! {
}

/// The folder of machines.
const MACHINES: &str = "machines/";

impl Shipped {
    /// What it is called: the file's name without its folder and ending.
    pub fn name(&self) -> &'static str {
        let file = self.path.strip_prefix(MACHINES).unwrap_or(self.path);
        file.strip_suffix(".toml").unwrap_or(file)
    }

    /// Whether it is a machine and no scenario.
    pub fn is_machine(&self) -> bool {
        self.path.starts_with(MACHINES)
    }
}

/// All scenarios, in the order in which lists show them.
pub fn scenarios() -> impl Iterator<Item = &'static Shipped> {
    SHIPPED.iter().filter(|shipped| !shipped.is_machine())
}

/// All machines.
pub fn machines() -> impl Iterator<Item = &'static Shipped> {
    SHIPPED.iter().filter(|shipped| shipped.is_machine())
}

/// The file at a path from the scenarios' folder.
pub fn at(path: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_of_the_folder_is_in_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let files = |folder: &Path, before: &str| -> Vec<String> {
            std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.ends_with(".toml"))
                .map(|name| format!("{before}{name}"))
                .collect()
        };
        let mut there = files(&folder, "");
        there.extend(files(&folder.join("machines"), MACHINES));
        let there: BTreeSet<String> = there.into_iter().collect();
        let shipped = SHIPPED.iter().map(|shipped| shipped.path.to_owned());
        assert_eq!(there, shipped.collect(), "in the folder; in the program");
    }
}
