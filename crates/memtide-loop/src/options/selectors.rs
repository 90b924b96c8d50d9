//! Which processes a class is made of, and which class wins where several fit.
//!
//! A class names cgroups, systemd units, users and executables. All kinds that it
//! names must fit a process; of one kind any of a list.
//!
//! # Who wins
//!
//! Of the classes that fit a process, that with the highest priority has it. Of
//! equal ones, that whose cgroup or unit is the deepest; then one that names it
//! without a star, before one that a pod chose, before one with a star; then one that
//! names more kinds. A class of pods names their cgroups (see [`pods`]), and
//! a pod chooses one class at most. Two classes between which this
//! does not decide must not fit the same process: [`ClassOptions::may_tie`] says
//! whether they may, and a configuration in which they may is an error. So no order
//! of names or files ever matters.

use super::pattern::{Pattern, names_may_meet, one};
use super::pods;
use super::{ClassOptions, Classes};
use crate::world::ClassId;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The longest list.
const MOST: usize = 64;
/// The longest name of a unit or a user, in bytes; systemd's, too.
const LONGEST_NAME: usize = 255;

/// One or several, of which any is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyOf<T>(Vec<T>);

impl<T> AnyOf<T> {
    /// All of them; never none.
    pub fn all(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<T> for AnyOf<T> {
    fn from(one: T) -> AnyOf<T> {
        AnyOf(vec![one])
    }
}

impl<T: fmt::Display> Serialize for AnyOf<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &*self.0 {
            [one] => to.collect_str(one),
            all => to.collect_seq(all.iter().map(T::to_string)),
        }
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for AnyOf<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AnyOf<T>, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: FromStr<Err = String>> Visitor<'de> for Reader<T> {
            type Value = AnyOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AnyOf<T>, E> {
                let one: T = text.parse().map_err(E::custom)?;
                Ok(AnyOf::from(one))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<AnyOf<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = from.next_element::<String>()? {
                    all.push(text.parse().map_err(A::Error::custom)?);
                }
                match (1..=MOST).contains(&all.len()) {
                    true => Ok(AnyOf(all)),
                    false => Err(A::Error::custom(format!("a list has 1 to {MOST} texts"))),
                }
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

macro_rules! text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// The name of a systemd unit that has a cgroup, in which `*` is any part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit(String);

text!(Unit);

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        const KINDS: [&str; 6] = [".service", ".slice", ".scope", ".socket", ".mount", ".swap"];
        let kind = KINDS.iter().any(|kind| text.ends_with(kind));
        let fits = |c: char| !c.is_control() && c != '/';
        match kind && text.len() <= LONGEST_NAME && text.chars().all(fits) {
            true => Ok(Unit(text.to_owned())),
            false => {
                Err("not the name of a unit; write it as redis.service or db.slice".to_owned())
            }
        }
    }
}

impl Unit {
    /// Whether the cgroup of these names is one of this unit. Only units of the
    /// machine's own manager: all cgroups above are slices. What is below others
    /// belongs to whom they were given to, who may name it as he likes.
    fn matches(&self, names: &[&[u8]]) -> bool {
        let Some((unit, above)) = names.split_last() else {
            return false;
        };
        // Names that the kernel could mean otherwise have this before them.
        let unit = unit.strip_prefix(b"_").unwrap_or(unit);
        above.iter().all(|name| name.ends_with(b".slice")) && one(self.0.as_bytes(), unit)
    }

    pub(super) fn is_plain(&self) -> bool {
        !self.0.contains('*')
    }
}

/// A user, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(String);

text!(User);

impl User {
    /// The number, if it is one.
    pub fn number(&self) -> Option<u32> {
        // Not the number that stands for nobody at all.
        memtide_core::numbers::decimal(&self.0).filter(|number| *number != u32::MAX)
    }

    /// The name or the number.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        // One number is written in one way.
        let digits = text.strip_prefix('+').unwrap_or(text);
        let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if number && text != "0" && text.starts_with(['+', '0']) {
            return Err("not the number of a user; write it without + and zeros before it".into());
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.$@+\\".contains(c);
        match text.chars().all(fits) && (1..=LONGEST_NAME).contains(&text.len()) {
            true => Ok(User(text.to_owned())),
            false => Err("not the name or the number of a user, in quotes".to_owned()),
        }
    }
}

/// How deep in the tree of cgroups a class is named, from 1; more is deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Depth {
    names: usize,
    how: How,
}

/// How a class names a cgroup; the last one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Starred,
    Chosen,
    Plain,
}

impl How {
    fn of(plain: bool) -> How {
        if plain { How::Plain } else { How::Starred }
    }
}

/// What a class asks of a process, its users as numbers.
#[derive(Clone, Debug)]
struct Rule {
    name: String,
    /// The folder in which pods choose it.
    chosen_in: Option<String>,
    priority: i32,
    kinds: usize,
    cgroups: Option<AnyOf<Pattern>>,
    units: Option<AnyOf<Unit>>,
    users: Option<Vec<u32>>,
    executables: Option<AnyOf<Pattern>>,
}

/// What of a cgroup fits: by class, how deep in it and the cgroups above it is
/// named by its cgroups and by its units.
pub type Fitting = Vec<[Option<Depth>; 2]>;

/// What a process is like, beside its cgroup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks<'a> {
    /// Its real user id, if that was read.
    pub user: Option<u32>,
    /// The path of its executable, if that was read.
    pub executable: Option<&'a [u8]>,
}

/// What all classes ask, by [`ClassId`].
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Those of `classes`, on a machine whose cgroups are mounted at `mount`; `user`
    /// knows the numbers of users, and who has none fits nobody.
    pub fn new(classes: &Classes, mount: &str, user: impl Fn(&User) -> Option<u32>) -> Rules {
        let below = |all: &AnyOf<Pattern>| {
            AnyOf(all.0.iter().map(|pattern| pattern.below(mount)).collect())
        };
        let rule = |(name, class): (&String, &ClassOptions)| Rule {
            name: name.clone(),
            chosen_in: class
                .pod_choice
                .as_ref()
                .map(|folder| folder.path().to_owned()),
            priority: class.priority,
            kinds: class.kinds(),
            cgroups: class.cgroups().as_ref().map(below),
            units: class.unit.clone(),
            users: (class.user.as_ref()).map(|all| all.0.iter().filter_map(&user).collect()),
            executables: class.executable.clone(),
        };
        Rules(classes.iter().map(rule).collect())
    }

    /// The folder in which pods choose classes, if they may choose any.
    pub fn pod_folder(&self) -> Option<&str> {
        self.0.iter().find_map(|rule| rule.chosen_in.as_deref())
    }

    /// The class of this name, if the pod may choose it whose own cgroup has these names.
    pub fn choice(&self, name: &str, pod: &[&[u8]]) -> Option<ClassId> {
        let may = |rule: &Rule| {
            let mut cgroups = rule.cgroups.iter().flat_map(AnyOf::all);
            rule.chosen_in.is_some() && cgroups.any(|pattern| pattern.matches(pod))
        };
        let mut all = self.0.iter();
        let at = all.position(|rule| rule.name == name && may(rule))?;
        Some(ClassId(at as u32))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether any class asks for a cgroup or a unit.
    pub fn ask_for_cgroups(&self) -> bool {
        let mut all = self.0.iter();
        all.any(|rule| rule.cgroups.is_some() || rule.units.is_some())
    }

    /// Whether any class asks for a user or an executable.
    pub fn ask_for_looks(&self) -> (bool, bool) {
        let users = self.0.iter().any(|rule| rule.users.is_some());
        (users, self.0.iter().any(|rule| rule.executables.is_some()))
    }

    /// Where the tree of cgroups has to be walked: below each of these, as the names
    /// from its root on.
    pub fn roots(&self) -> Vec<Vec<&[u8]>> {
        let mut roots = Vec::new();
        for rule in &self.0 {
            match (&rule.cgroups, &rule.units) {
                (Some(all), _) => roots.extend(all.0.iter().map(Pattern::fixed)),
                (None, Some(_)) => roots.push(Vec::new()),
                (None, None) => {}
            }
        }
        roots.sort();
        roots.dedup_by(|root, above| root.starts_with(above));
        roots
    }

    /// What fits the cgroup of these names, if so much fits the one above it. If it is a
    /// pod's own, that is the class which the pod `chose`.
    pub fn fitting(&self, above: &Fitting, names: &[&[u8]], chose: Option<ClassId>) -> Fitting {
        let deeper = |was: Option<Depth>, how: Option<How>| {
            let depth = how.map(|how| Depth {
                names: names.len() + 1,
                how,
            });
            depth.or(was)
        };
        let is_chosen = |n: usize| chose == Some(ClassId(n as u32));
        let fits = |(n, rule): (usize, &Rule)| {
            let [cgroup, unit] = above.get(n).copied().unwrap_or_default();
            let cgroups = rule.cgroups.iter().flat_map(AnyOf::all);
            let cgroups = cgroups.filter(|pattern| pattern.matches(names));
            let units = rule.units.iter().flat_map(AnyOf::all);
            let units = units.filter(|unit| unit.matches(names));
            let cgroups = cgroups.map(|pattern| How::of(pattern.is_plain())).max();
            let cgroups = match rule.chosen_in {
                Some(_) => cgroups.filter(|_| is_chosen(n)).map(|_| How::Chosen),
                None => cgroups,
            };
            let units = units.map(|unit| How::of(unit.is_plain())).max();
            [deeper(cgroup, cgroups), deeper(unit, units)]
        };
        self.0.iter().enumerate().map(fits).collect()
    }

    /// Whether a class may have a cgroup below that of these names, if so much fits that.
    pub fn may_fit_below(&self, fitting: &Fitting, names: &[&[u8]]) -> bool {
        let slices = names.iter().all(|name| name.ends_with(b".slice"));
        self.0.iter().enumerate().any(|(n, rule)| {
            let [cgroup, unit] = fitting.get(n).copied().unwrap_or_default();
            let asks = rule.cgroups.is_some() || rule.units.is_some();
            let below = |all: &AnyOf<Pattern>| all.0.iter().any(|one| one.may_match_below(names));
            asks && (cgroup.is_some() || rule.cgroups.as_ref().is_none_or(below))
                && (unit.is_some() || rule.units.is_none() || slices)
        })
    }

    /// Which class has a process in a cgroup that so much fits, and that looks so.
    pub fn class_of(&self, fitting: &Fitting, looks: Looks<'_>) -> Option<ClassId> {
        self.best(fitting, |rule| {
            let user = |all: &Vec<u32>| looks.user.is_some_and(|user| all.contains(&user));
            let executable = |all: &AnyOf<Pattern>| {
                let names = looks.executable.map(|path| {
                    let names = path.split(|byte| *byte == b'/');
                    names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
                });
                names.is_some_and(|names| all.0.iter().any(|one| one.matches(&names)))
            };
            rule.users.as_ref().is_none_or(user) && rule.executables.as_ref().is_none_or(executable)
        })
    }

    /// Which class has what is charged to a cgroup: of those that ask for nothing
    /// else.
    pub fn class_of_cgroup(&self, fitting: &Fitting) -> Option<ClassId> {
        self.best(fitting, |rule| {
            rule.users.is_none() && rule.executables.is_none()
        })
    }

    /// Whether what `class` uses is what is charged to its cgroups.
    pub fn is_charged(&self, class: ClassId) -> bool {
        let rule = self.0.get(class.0 as usize);
        rule.is_some_and(|rule| rule.users.is_none() && rule.executables.is_none())
    }

    fn best(&self, fitting: &Fitting, fits: impl Fn(&Rule) -> bool) -> Option<ClassId> {
        let rank = |(n, rule): (usize, &Rule)| {
            let [cgroup, unit] = fitting.get(n).copied().unwrap_or_default();
            let there = (rule.cgroups.is_none() || cgroup.is_some())
                && (rule.units.is_none() || unit.is_some());
            let rank = (rule.priority, cgroup.max(unit), rule.kinds);
            (there && fits(rule)).then_some((rank, ClassId(n as u32)))
        };
        let ranks = self.0.iter().enumerate().filter_map(rank);
        ranks.max_by_key(|(rank, _)| *rank).map(|(_, class)| class)
    }
}

impl ClassOptions {
    /// How many kinds of selectors it has.
    pub fn kinds(&self) -> usize {
        let kinds = [
            self.cgroup.is_some() || self.is_of_pods(),
            self.unit.is_some(),
            self.user.is_some(),
            self.executable.is_some(),
        ];
        kinds.into_iter().filter(|kind| *kind).count()
    }

    /// Whether it asks for pods.
    pub fn is_of_pods(&self) -> bool {
        self.pod_qos.is_some() || self.pod_uid.is_some() || self.pod_choice.is_some()
    }

    /// The cgroups that it asks for, those of pods too.
    pub fn cgroups(&self) -> Option<AnyOf<Pattern>> {
        match self.is_of_pods() {
            true => Some(AnyOf(pods::cgroups(
                self.pod_qos.as_ref(),
                self.pod_uid.as_ref(),
            ))),
            false => self.cgroup.clone(),
        }
    }

    /// Whether both may fit a process, and no rule says which has it. It is sure
    /// only where neither has a star.
    pub fn may_tie(&self, other: &ClassOptions) -> bool {
        self.may_tie_where(other, User::number)
    }

    /// The same where `number` knows the numbers of users. It may find that two names
    /// are those of one user.
    pub fn may_tie_where(
        &self,
        other: &ClassOptions,
        number: impl Fn(&User) -> Option<u32>,
    ) -> bool {
        let equal = (self.priority, self.kinds()) == (other.priority, other.kinds());
        let users_meet = |a: &User, b: &User| match (number(a), number(b)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a == b,
            // A name and a number may be one user.
            _ => true,
        };
        // A pod chooses one class at most, and is before those that it did not choose, or after.
        let chosen = self.pod_choice.is_some() || other.pod_choice.is_some();
        equal
            && !chosen
            && !apart(&self.user, &other.user, users_meet)
            && !apart(&self.executable, &other.executable, Pattern::may_meet)
            && self.may_be_as_deep(other)
    }

    fn may_be_as_deep(&self, other: &ClassOptions) -> bool {
        let (a, b) = (self.named(), other.named());
        match (a.is_empty(), b.is_empty()) {
            (true, true) => true,
            (false, false) => a.iter().any(|a| b.iter().any(|b| a.may_meet(b))),
            _ => false,
        }
    }

    /// What it names of the tree of cgroups.
    fn named(&self) -> Vec<Named<'_>> {
        let cgroups = self.cgroups().into_iter().flat_map(|all| all.0);
        let cgroups = cgroups.map(|pattern| Named::Cgroup(pattern.below("/sys/fs/cgroup")));
        let units = self.unit.iter().flat_map(AnyOf::all);
        cgroups.chain(units.map(Named::Unit)).collect()
    }
}

/// Whether two classes ask for the same kind, and nothing fits both.
fn apart<T>(a: &Option<AnyOf<T>>, b: &Option<AnyOf<T>>, meet: impl Fn(&T, &T) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => !a.0.iter().any(|a| b.0.iter().any(|b| meet(a, b))),
        _ => false,
    }
}

enum Named<'a> {
    Cgroup(Pattern),
    Unit(&'a Unit),
}

impl Named<'_> {
    fn is_plain(&self) -> bool {
        match self {
            Named::Cgroup(pattern) => pattern.is_plain(),
            Named::Unit(unit) => unit.is_plain(),
        }
    }

    /// Whether both may name one cgroup, equally well.
    fn may_meet(&self, other: &Named<'_>) -> bool {
        let meet = match (self, other) {
            (Named::Cgroup(a), Named::Cgroup(b)) => a.may_meet(b),
            (Named::Unit(a), Named::Unit(b)) => names_may_meet(a.0.as_bytes(), b.0.as_bytes()),
            (Named::Cgroup(path), Named::Unit(unit)) | (Named::Unit(unit), Named::Cgroup(path)) => {
                let names = path.names();
                names.last().is_some_and(|last| {
                    // As [`Unit::matches`] has it.
                    let last = last.strip_prefix(b"_").unwrap_or(last);
                    last == b"**" || names_may_meet(last, unit.0.as_bytes())
                })
            }
        };
        meet && self.is_plain() == other.is_plain()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PodUid;
    use super::*;

    fn classes(text: &str) -> Classes {
        toml::from_str(text).unwrap()
    }

    fn rules(text: &str) -> Rules {
        let user = |user: &User| user.number().or((user.text() == "redis").then_some(99));
        Rules::new(&classes(text), "/sys/fs/cgroup", user)
    }

    /// The class of a process in this cgroup.
    fn class(rules: &Rules, cgroup: &str, user: u32, executable: &str) -> Option<u32> {
        class_where(rules, None, cgroup, user, executable)
    }

    /// The same where a pod chose that class.
    fn class_where(
        rules: &Rules,
        chose: Option<ClassId>,
        cgroup: &str,
        user: u32,
        executable: &str,
    ) -> Option<u32> {
        let names: Vec<&[u8]> = (cgroup.split('/').filter(|name| !name.is_empty()))
            .map(str::as_bytes)
            .collect();
        let mut fitting = rules.fitting(&Fitting::new(), &[], None);
        for n in 1..=names.len() {
            let chose = PodUid::of_cgroup(&names[..n]).and(chose);
            fitting = rules.fitting(&fitting, &names[..n], chose);
        }
        let looks = Looks {
            user: Some(user),
            executable: Some(executable.as_bytes()),
        };
        rules.class_of(&fitting, looks).map(|class| class.0)
    }

    #[test]
    fn all_kinds_must_fit_and_of_a_list_any() {
        let rules = rules(
            "[a]\ncgroup = ['/db', '/web/*']\nuser = ['redis', '7']\n\
             [b]\nexecutable = '/usr/bin/*'\n",
        );
        let of = |cgroup, user, executable| class(&rules, cgroup, user, executable);
        assert_eq!(of("/db/x", 99, "/bin/sh"), Some(0));
        assert_eq!(of("/web/x/y", 7, "/bin/sh"), Some(0));
        assert_eq!(of("/web", 7, "/bin/sh"), None);
        assert_eq!(of("/db", 8, "/bin/sh"), None);
        assert_eq!(of("/db", 8, "/usr/bin/sh"), Some(1));
        assert_eq!(of("/", 8, "/usr/bin/a/sh"), None);
        // Nobody who was not read fits.
        assert_eq!(rules.class_of(&Fitting::new(), Looks::default()), None);
    }

    #[test]
    fn priority_then_depth_then_no_star_then_more_kinds() {
        let rules = rules(
            "[a]\ncgroup = '/x'\npriority = 1\n[b]\ncgroup = '/y'\n[c]\ncgroup = '/*/z'\n\
             [d]\ncgroup = '/y/z'\n[e]\ncgroup = '/y/z'\nuser = '7'\n[f]\nuser = '8'\n",
        );
        let of = |cgroup, user| class(&rules, cgroup, user, "/bin/sh");
        assert_eq!(of("/x/z", 1), Some(0));
        assert_eq!(of("/y/a", 1), Some(1));
        assert_eq!(of("/w/z", 1), Some(2));
        assert_eq!(of("/y/z/a", 1), Some(3));
        assert_eq!(of("/y/z/a", 7), Some(4));
        assert_eq!(of("/w", 8), Some(5));
        // A user alone is less than any cgroup.
        assert_eq!(of("/y", 8), Some(1));
    }

    #[test]
    fn pods_are_of_their_quality_or_their_uid_or_what_they_choose() {
        let rules = rules(
            "[a]\npod_qos = 'burstable'\n[b]\npod_qos = ['guaranteed', 'besteffort']\n\
             [c]\npod_uid = '1-a'\n[d]\npod_choice = '/run/pods'\n\
             [e]\npod_choice = '/run/pods'\npod_qos = 'guaranteed'\n\
             [f]\npod_uid = '9-f'\npod_qos = 'burstable'\npriority = 1\n",
        );
        let burstable = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable";
        let of = |chose: Option<&str>, cgroup: &str| {
            let names: Vec<&[u8]> = (cgroup.split('/').filter(|name| !name.is_empty()))
                .map(str::as_bytes)
                .collect();
            let mut above = (1..=names.len()).map(|n| &names[..n]);
            let pod = above.find(|names| PodUid::of_cgroup(names).is_some());
            let chose = chose.zip(pod);
            let chose = chose.and_then(|(name, pod)| rules.choice(name, pod));
            class_where(&rules, chose, cgroup, 7, "/x")
        };
        for (chose, cgroup, wanted) in [
            (
                None,
                format!("{burstable}-pod2_b.slice/cri-containerd-0.scope"),
                Some(0),
            ),
            (None, "/kubepods/burstable/pod2-b/0123".to_owned(), Some(0)),
            (
                None,
                "/kubepods.slice/kubepods-pod2_b.slice".to_owned(),
                Some(1),
            ),
            (None, "/kubepods/besteffort/pod2-b".to_owned(), Some(1)),
            // Those of no pod, and those that a user named so.
            (
                None,
                "/kubepods.slice/kubepods-burstable.slice".to_owned(),
                None,
            ),
            (
                None,
                "/user.slice/kubepods/burstable/pod2-b".to_owned(),
                None,
            ),
            // A uid is more than a quality.
            (None, format!("{burstable}-pod1_a.slice"), Some(2)),
            // What a pod chose is more than its quality, and less than its uid.
            (Some("d"), format!("{burstable}-pod2_b.slice/x"), Some(3)),
            (Some("d"), format!("{burstable}-pod1_a.slice"), Some(2)),
            // Only a pod that is guaranteed may choose this one.
            (Some("e"), format!("{burstable}-pod2_b.slice"), Some(0)),
            (Some("e"), "/kubepods/pod2-b".to_owned(), Some(4)),
            // Nobody chooses what is not for that, or is not there.
            (Some("a"), "/kubepods/pod2-b".to_owned(), Some(1)),
            (Some("x"), "/kubepods/pod2-b".to_owned(), Some(1)),
            (Some("d"), "/kubepods/burstable/pod9-f".to_owned(), Some(5)),
        ] {
            assert_eq!(of(chose, &cgroup), wanted, "{chose:?} {cgroup}");
        }
        assert_eq!(rules.pod_folder(), Some("/run/pods"));
        assert!(rules.is_charged(ClassId(3)) && rules.ask_for_cgroups());
    }

    #[test]
    fn units_are_those_of_the_machines_manager() {
        let rules = rules(
            "[a]\nunit = 'redis@*.service'\n[b]\nunit = 'db.slice'\n[c]\nunit = '_x.service'\n",
        );
        let of = |cgroup| class(&rules, cgroup, 1, "");
        assert_eq!(of("/system.slice/redis@1.service"), Some(0));
        assert_eq!(
            of("/system.slice/system-redis.slice/redis@1.service/x"),
            Some(0)
        );
        assert_eq!(of("/db.slice/pg.service"), Some(1));
        assert_eq!(of("/db.slice/redis@1.service"), Some(0));
        assert_eq!(of("/redis@1.service.d"), None);
        // A user names what is below his own manager.
        let own = "/user.slice/user-7.slice/user@7.service/app.slice/redis@1.service";
        assert_eq!(of(own), None);
        assert_eq!(of("/system.slice/__x.service"), Some(2));
    }

    #[test]
    fn nothing_is_looked_for_where_nothing_can_fit() {
        let both = "[a]\nunit = 'r.service'\ncgroup = '/s.slice/*/x/**/y'";
        for (classes, cgroup, wanted) in [
            ("[a]\nunit = 'r.service'", "", true),
            ("[a]\nunit = 'r.service'", "/s.slice/t.slice", true),
            ("[a]\nunit = 'r.service'", "/s.slice/q.service", false),
            (
                "[a]\nunit = 'r.service'",
                "/s.slice/q.service/b.slice",
                false,
            ),
            // It has all that is below it.
            ("[a]\nunit = 'r.service'", "/s.slice/r.service/x", true),
            ("[a]\ncgroup = '/a/*/c'", "/a/b", true),
            ("[a]\ncgroup = '/a/*/c'", "/a/b/d", false),
            ("[a]\ncgroup = '/a/*/c'", "/b", false),
            ("[a]\ncgroup = '/a*'", "/b", false),
            ("[a]\ncgroup = '/a*'", "/ab/c", true),
            ("[a]\ncgroup = '/**/a'", "/b/c/d", true),
            (both, "/s.slice", true),
            (both, "/t.slice", false),
            (both, "/s.slice/q.service", false),
            (both, "/s.slice/r.service", true),
            (both, "/s.slice/r.service/z", false),
            (both, "/s.slice/r.service/x/1/2", true),
            ("[a]\nuser = '7'", "", false),
        ] {
            let rules = rules(classes);
            let names: Vec<&[u8]> = (cgroup.split('/').filter(|name| !name.is_empty()))
                .map(str::as_bytes)
                .collect();
            let along = |above, n| rules.fitting(&above, &names[..n], None);
            let fitting = (0..=names.len()).fold(Fitting::new(), along);
            let may = rules.may_fit_below(&fitting, &names);
            assert_eq!(may, wanted, "{classes} {cgroup}");
        }
    }

    #[test]
    fn what_is_charged_is_of_classes_of_cgroups() {
        let rules = rules("[a]\ncgroup = '/a'\n[b]\ncgroup = '/a/b'\nuser = '7'\n");
        let fitting = rules.fitting(&Fitting::new(), &[b"a"], None);
        let below = rules.fitting(&fitting, &[b"a", b"b"], None);
        assert_eq!(rules.class_of_cgroup(&below), Some(ClassId(0)));
        assert!(rules.is_charged(ClassId(0)) && !rules.is_charged(ClassId(1)));
        let roots = rules.roots();
        assert_eq!(roots, [vec![b"a".as_slice()]]);
    }

    #[test]
    fn who_may_tie_is_found() {
        let tie = |a: &str, b: &str| {
            let both = classes(&format!("[a]\n{a}\n[b]\n{b}\n"));
            let tie = both["a"].may_tie(&both["b"]);
            assert_eq!(tie, both["b"].may_tie(&both["a"]));
            tie
        };
        for (a, b, wanted) in [
            ("cgroup = '/a'", "cgroup = '/b'", false),
            ("cgroup = '/a'", "cgroup = '/sys/fs/cgroup/a'", true),
            ("cgroup = '/a/b'", "cgroup = '/a/*'", false),
            ("cgroup = '/x/*'", "cgroup = '/*/y'", true),
            ("cgroup = '/x/*'", "cgroup = '/y/*'", false),
            ("cgroup = '/x/*'", "cgroup = '/x/*/*'", false),
            ("cgroup = '/a-*'", "cgroup = '/b-*'", false),
            ("cgroup = '/*-a'", "cgroup = '/*-b'", false),
            ("cgroup = '/x/*'\npriority = 1", "cgroup = '/*/y'", false),
            (
                "cgroup = '/x/*'\nuser = 'a'",
                "cgroup = '/*/y'\nuser = 'b'",
                false,
            ),
            (
                "cgroup = '/x/*'\nuser = 'a'",
                "cgroup = '/*/y'\nuser = '7'",
                true,
            ),
            ("cgroup = '/a'", "user = 'a'", false),
            ("user = 'a'", "executable = '/a'", true),
            ("user = 'a'", "user = ['b', 'a']", true),
            ("executable = '/a'", "executable = '/*'", true),
            ("executable = '/a'", "executable = '/b'", false),
            ("unit = 'a.service'", "unit = 'b.service'", false),
            ("unit = 'a.service'", "cgroup = '/x/a.service'", true),
            ("unit = 'a@*.service'", "unit = '*@b.service'", true),
            // The cgroup of the unit x.service may be _x.service.
            ("unit = 'x.service'", "cgroup = '/_x.service'", true),
            ("unit = 'x.service'", "cgroup = '/x.service'", true),
            ("unit = '_x.service'", "cgroup = '/__x.service'", true),
            ("unit = '_x.service'", "cgroup = '/_x.service'", false),
            ("unit = 'x*.service'", "cgroup = '/_x1*'", true),
            ("pod_qos = 'burstable'", "pod_qos = 'guaranteed'", false),
            (
                "pod_qos = 'burstable'",
                "pod_qos = ['besteffort', 'burstable']",
                true,
            ),
            ("pod_qos = 'burstable'", "pod_uid = 'a'", false),
            ("pod_uid = 'b'", "pod_uid = 'a'", false),
            ("pod_uid = 'a'", "pod_uid = ['b', 'a']", true),
            ("pod_uid = 'a'", "cgroup = '/kubepods/poda'", true),
            ("pod_qos = 'burstable'", "pod_choice = '/run/p'", false),
            ("pod_choice = '/run/p'", "pod_choice = '/run/p'", false),
            ("cgroup = '/a'", "cgroup = '//a/.'", true),
            (
                "executable = '/usr/bin/x'",
                "executable = '/usr/./bin/x'",
                true,
            ),
        ] {
            assert_eq!(tie(a, b), wanted, "{a} {b}");
        }
        let both = classes("[a]\nuser = 'a'\n[b]\nuser = 'b'\n");
        let where_all_are = |number| both["a"].may_tie_where(&both["b"], |_| number);
        assert!(where_all_are(Some(7)) && !where_all_are(None));
    }

    #[test]
    fn a_list_of_one_is_written_as_one() {
        let class: ClassOptions =
            toml::from_str("user = ['a']\nunit = ['a.slice', 'b.slice']").unwrap();
        let text = toml::to_string(&class).unwrap();
        assert!(text.contains("user = \"a\"\n"), "{text}");
        assert_eq!(toml::from_str::<ClassOptions>(&text).unwrap(), class);
        for wrong in [
            "user = []",
            "user = 7",
            "user = 'a b'",
            "user = '007'",
            "user = '00'",
            "user = '+7'",
            "user = '+0'",
            "unit = 'redis'",
            "unit = 'a/b.service'",
            "executable = 'redis'",
            "cgroup = [['/a']]",
        ] {
            assert!(toml::from_str::<ClassOptions>(wrong).is_err(), "{wrong}");
        }
    }
}
