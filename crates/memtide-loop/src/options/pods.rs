//! Kubernetes' pods: by their quality of service and their uid, through the paths of
//! their cgroups, and by what they choose themselves.
//!
//! A kubelet makes a cgroup for each pod, below one for each quality of service but the
//! best. With systemd's driver these are slices, and the uid has `_` for `-`; with the
//! other one they are plain folders:
//!
//! ```text
//! /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice
//! /kubepods/burstable/podUID
//! ```
//!
//! Only these paths count, from the root on: users name the cgroups below their own as
//! they like.

use super::pattern::Pattern;
use super::selectors::AnyOf;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest uid, in bytes. The kubelet's own have 32 or 36.
const LONGEST_UID: usize = 64;

/// A pod's quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodQos {
    /// Its limits are what it requests.
    Guaranteed,
    /// It requests less than its limits.
    Burstable,
    /// It requests nothing.
    BestEffort,
}

impl PodQos {
    const ALL: [PodQos; 3] = [PodQos::Guaranteed, PodQos::Burstable, PodQos::BestEffort];

    /// As cgroups are called; the first has none of its own.
    fn folder(self) -> Option<&'static str> {
        match self {
            PodQos::Guaranteed => None,
            PodQos::Burstable => Some("burstable"),
            PodQos::BestEffort => Some("besteffort"),
        }
    }

    /// The cgroups of pods of this quality: of the one with this uid, or of all for `*`.
    fn cgroups(self, uid: &str) -> [Pattern; 2] {
        let escaped = uid.replace('-', "_");
        let paths = match self.folder() {
            None => [
                format!("/kubepods.slice/kubepods-pod{escaped}.slice"),
                format!("/kubepods/pod{uid}"),
            ],
            Some(qos) => [
                format!("/kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-pod{escaped}.slice"),
                format!("/kubepods/{qos}/pod{uid}"),
            ],
        };
        paths.map(|path| path.parse().expect("a path"))
    }
}

impl FromStr for PodQos {
    type Err = String;

    fn from_str(text: &str) -> Result<PodQos, String> {
        let mut all = PodQos::ALL.into_iter();
        let found = all.find(|qos| qos.to_string() == text);
        found.ok_or_else(|| "not one of guaranteed, burstable and besteffort".to_owned())
    }
}

impl fmt::Display for PodQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.folder().unwrap_or("guaranteed"))
    }
}

/// The uid of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    /// Its text: letters, digits and `-`.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// That of the pod whose own cgroup has these names, from the root on; `None` if it is
    /// no pod's.
    pub fn of_cgroup(names: &[&[u8]]) -> Option<PodUid> {
        let [above @ .., last] = names else {
            return None;
        };
        let uid = match above {
            [b"kubepods"] | [b"kubepods", b"burstable" | b"besteffort"] => {
                last.strip_prefix(b"pod")?
            }
            [b"kubepods.slice"] => slice(last, b"kubepods-pod")?,
            [b"kubepods.slice", b"kubepods-burstable.slice"] => {
                slice(last, b"kubepods-burstable-pod")?
            }
            [b"kubepods.slice", b"kubepods-besteffort.slice"] => {
                slice(last, b"kubepods-besteffort-pod")?
            }
            _ => return None,
        };
        let uid = std::str::from_utf8(uid).ok()?;
        uid.replace('_', "-").parse().ok()
    }
}

fn slice<'a>(name: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    name.strip_prefix(prefix)?.strip_suffix(b".slice")
}

impl FromStr for PodUid {
    type Err = String;

    fn from_str(text: &str) -> Result<PodUid, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let length = (1..=LONGEST_UID).contains(&text.len());
        match length && text.chars().all(fits) && !text.starts_with('-') {
            true => Ok(PodUid(text.to_owned())),
            false => Err(
                "not the uid of a pod; write it as `kubectl get pod` prints its metadata.uid"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder in which pods choose their classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodFolder(String);

impl PodFolder {
    /// Its path.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PodFolder {
    type Error = String;

    fn try_from(text: String) -> Result<PodFolder, String> {
        let up = text.split('/').any(|name| name == "..");
        match text.starts_with('/') && !up && !text.contains('\0') {
            true => Ok(PodFolder(text)),
            false => Err("not a path that begins with / and has no ..".to_owned()),
        }
    }
}

impl From<PodFolder> for String {
    fn from(folder: PodFolder) -> String {
        folder.0
    }
}

impl fmt::Display for PodFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The cgroups of pods of any of these qualities and uids; of all if neither is said.
pub(super) fn cgroups(qos: Option<&AnyOf<PodQos>>, uid: Option<&AnyOf<PodUid>>) -> Vec<Pattern> {
    let of = |uid: &str| -> Vec<Pattern> {
        let all = qos.map_or(&PodQos::ALL[..], AnyOf::all);
        all.iter().flat_map(|qos| qos.cgroups(uid)).collect()
    };
    match uid {
        None => of("*"),
        Some(uids) => uids.all().iter().flat_map(|uid| of(uid.text())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f8b5c1e-7f1a-4b7e-9c55-2f6d1f0a9e11";

    fn names(path: &str) -> Vec<&[u8]> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.map(str::as_bytes).collect()
    }

    #[test]
    fn a_pod_is_known_by_its_cgroup_with_both_drivers() {
        let escaped = UID.replace('-', "_");
        for qos in PodQos::ALL {
            let patterns = qos.cgroups(UID);
            for pattern in &patterns {
                let path = pattern.to_string();
                let uid = PodUid::of_cgroup(&names(&path));
                assert_eq!(uid.unwrap().text(), UID, "{path}");
                assert!(
                    qos.cgroups("*")
                        .iter()
                        .any(|all| all.matches(&names(&path)))
                );
                for other in PodQos::ALL.into_iter().filter(|other| *other != qos) {
                    let of_other = other.cgroups("*");
                    assert!(!of_other.iter().any(|all| all.matches(&names(&path))));
                }
            }
            assert!(patterns[0].to_string().contains(&escaped));
        }
        for wrong in [
            "/kubepods",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-besteffort-podx.slice",
            "/kubepods.slice/kubepods-podx",
            "/kubepods/guaranteed/podx",
            "/kubepods/pod",
            "/kubepods/pod../x",
            "/kubepods/pod..",
            "/user.slice/kubepods/podx",
            "/kubepods/podx/box",
        ] {
            assert_eq!(PodUid::of_cgroup(&names(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_uid_quality_or_folder_is_refused() {
        for wrong in ["", "-a", "a/b", "a b", "..", "a*", &"a".repeat(65)] {
            assert!(wrong.parse::<PodUid>().is_err(), "{wrong}");
        }
        for qos in PodQos::ALL {
            assert_eq!(qos.to_string().parse(), Ok(qos));
        }
        assert!("Guaranteed".parse::<PodQos>().is_err());
        for wrong in ["", "run", "/run/../etc", "/a\0"] {
            assert!(PodFolder::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
