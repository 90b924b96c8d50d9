//! Classes: the tables `[class.NAME]`, and where they say what cannot be.

use super::{Place, Settings};
use memtide_loop::options::{self, ClassOptions, Objection};

pub use memtide_loop::options::check_name;

/// The table of a class.
pub fn table(name: &str) -> String {
    format!("class.{name}")
}

/// What the classes' keys say together; of amounts only what can be said on any machine.
pub fn agree(
    settings: &Settings,
    place: &dyn Fn(&str, &str) -> Option<Place>,
) -> anyhow::Result<()> {
    let others = (settings.select.tiered(), settings.select.balance);
    options::agree(&settings.class, others, &at(place)).map_err(|wrong| error(&wrong, place))?;
    let idle = |(_, class): &(&String, &ClassOptions)| class.demote_idle == Some(true);
    match settings.class.iter().find(idle) {
        Some((name, _)) if settings.tier.demote_idle.is_none() => {
            let what = "demote_idle: nothing says after how long; set demote_idle in [tier], or leave this out";
            let wrong = Objection {
                class: name.clone(),
                key: "demote_idle",
                what: what.to_owned(),
            };
            Err(error(&wrong, place))
        }
        _ => Ok(()),
    }
}

/// Whether the amounts fit together, on a machine with so many bytes of fast memory if that is known.
pub fn fit(
    settings: &Settings,
    place: &dyn Fn(&str, &str) -> Option<Place>,
    fast: Option<u64>,
) -> anyhow::Result<()> {
    options::fit(&settings.class, &at(place), fast).map_err(|wrong| error(&wrong, place))
}

fn at(place: &dyn Fn(&str, &str) -> Option<Place>) -> impl Fn(&str, &str) -> Option<String> {
    |class, key| Some(place(&table(class), key)?.to_string())
}

fn error(wrong: &Objection, place: &dyn Fn(&str, &str) -> Option<Place>) -> anyhow::Error {
    let at = at(place)(&wrong.class, wrong.key);
    let at = at.map_or(String::new(), |at| format!("{at}: "));
    anyhow::anyhow!("{at}{}", wrong.what)
}
