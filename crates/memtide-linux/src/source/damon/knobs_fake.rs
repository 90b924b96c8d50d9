//! A kernel made of a map: numbers written to `nr_*` make folders.

use super::*;
use crate::files::faults;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Records writes, behaves like DAMON's tree, fails on demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeKernel {
    pub files: BTreeMap<String, String>,
    pub writes: Vec<(String, String)>,
    /// Writes left until one fails; `None` never fails.
    pub fail_after: Option<usize>,
}

pub(crate) const ADMIN: &str = "sys/kernel/mm/damon/admin/kdamonds";

impl FakeKernel {
    pub(crate) fn new() -> FakeKernel {
        let mut kernel = FakeKernel::default();
        kernel
            .files
            .insert(format!("{ADMIN}/nr_kdamonds"), "0".into());
        kernel
    }

    fn make(&mut self, path: &str, value: &str) {
        let Some((folder, file)) = path.rsplit_once('/') else {
            return;
        };
        if !file.starts_with("nr_") || file == "nr_regions" && folder.ends_with("monitoring_attrs")
        {
            return;
        }
        let gone = format!("{folder}/");
        self.files.retain(|name, _| {
            !name.strip_prefix(&gone).is_some_and(|rest| {
                rest.split('/')
                    .next()
                    .is_some_and(|part| part.parse::<u32>().is_ok())
            })
        });
        for n in 0..value.parse::<usize>().unwrap() {
            let children: &[(&str, &str)] = match file {
                "nr_kdamonds" => &[
                    ("state", "off"),
                    ("pid", "-1"),
                    ("contexts/nr_contexts", "0"),
                ],
                "nr_contexts" => &[
                    ("avail_operations", "vaddr\nfvaddr\npaddr"),
                    ("operations", "vaddr"),
                    ("monitoring_attrs/intervals/sample_us", "5000"),
                    ("monitoring_attrs/intervals/aggr_us", "100000"),
                    ("monitoring_attrs/intervals/update_us", "60000000"),
                    ("monitoring_attrs/nr_regions/min", "10"),
                    ("monitoring_attrs/nr_regions/max", "1000"),
                    ("targets/nr_targets", "0"),
                    ("schemes/nr_schemes", "0"),
                ],
                "nr_targets" => &[("pid_target", "0"), ("regions/nr_regions", "0")],
                "nr_regions" => &[("start", "0"), ("end", "0")],
                _ => &[],
            };
            for (child, initial) in children {
                self.files
                    .insert(format!("{folder}/{n}/{child}"), (*initial).into());
            }
        }
    }
}

/// A kernel that outlives the process that writes to it.
pub(crate) type Shared = Rc<RefCell<FakeKernel>>;

impl Knobs for Shared {
    fn read(&self, path: &str) -> Result<String, KnobError> {
        self.borrow().read(path)
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError> {
        self.borrow_mut().write(path, value)
    }

    fn exists(&self, path: &str) -> bool {
        self.borrow().exists(path)
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}

impl Knobs for FakeKernel {
    fn read(&self, path: &str) -> Result<String, KnobError> {
        self.files
            .get(path)
            .cloned()
            .ok_or_else(|| KnobError::Read {
                path: path.into(),
                source: io::Error::from_raw_os_error(libc::ENOENT),
            })
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError> {
        let refuse = |errno| {
            Err(KnobError::Write {
                path: path.into(),
                value: value.into(),
                source: io::Error::from_raw_os_error(errno),
            })
        };
        faults::ask(&format!("write {path}")).map_err(|source| KnobError::Write {
            path: path.into(),
            value: value.into(),
            source,
        })?;
        match &mut self.fail_after {
            Some(0) => {
                self.fail_after = None;
                return refuse(libc::ENOMEM);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        if !self.files.contains_key(path) {
            return refuse(libc::ENOENT);
        }
        let runs = |(name, value): (&String, &String)| name.ends_with("/state") && value == "on";
        if path.ends_with("/nr_kdamonds") && self.files.iter().any(runs) {
            return refuse(libc::EBUSY);
        }
        if let Some(folder) = path.strip_suffix("/state") {
            let on = self.files[path] == "on";
            match value {
                "off" if !on => return refuse(libc::EPERM),
                "on" if on => return refuse(libc::EBUSY),
                _ => {}
            }
            let pid = if value == "on" { "4242" } else { "-1" };
            self.files.insert(format!("{folder}/pid"), pid.into());
        }
        self.writes.push((path.into(), value.into()));
        self.files.insert(path.into(), value.into());
        self.make(path, value);
        Ok(())
    }

    fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains_key(path) || self.files.keys().any(|name| name.starts_with(&folder))
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}
