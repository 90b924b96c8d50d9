//! Colours of the charts that follow the reader's light or dark setting.
//!
//! The charting library writes fixed colours into the SVG. It is given colours that nobody would
//! choose, one for each *role*; afterwards [`finish`] replaces each by the CSS variable of that role,
//! and the page's style sheet says what the variable is in light and in dark.

use plotters::style::RGBColor;

/// How many colours lines and bars have before they repeat.
pub const SERIES: usize = 10;
/// Steps of the heat map's scale.
pub const HEAT: usize = 16;

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Text.
    Text,
    /// Axes.
    Axis,
    /// Lines behind the data.
    Grid,
    /// What is there for comparison: a published figure.
    Mark,
    /// The nth series.
    Series(usize),
    /// A step of the heat scale, 0 to [`HEAT`] - 1.
    Heat(usize),
}

impl Role {
    /// The colour that stands for it until [`finish`].
    pub fn colour(self) -> RGBColor {
        match self {
            Role::Text => RGBColor(1, 0, 0),
            Role::Axis => RGBColor(1, 0, 1),
            Role::Grid => RGBColor(1, 0, 2),
            Role::Mark => RGBColor(1, 0, 3),
            Role::Series(n) => RGBColor(1, 1, (n % SERIES) as u8),
            Role::Heat(n) => RGBColor(1, 2, n.min(HEAT - 1) as u8),
        }
    }

    /// The CSS variable.
    pub fn variable(self) -> String {
        match self {
            Role::Text => "--text".to_owned(),
            Role::Axis => "--axis".to_owned(),
            Role::Grid => "--grid".to_owned(),
            Role::Mark => "--mark".to_owned(),
            Role::Series(n) => format!("--s{}", n % SERIES),
            Role::Heat(n) => format!("--h{}", n.min(HEAT - 1)),
        }
    }
}

/// The SVG with a CSS variable for each role, and without what only makes it longer.
pub fn finish(svg: &str) -> String {
    let fixed = [Role::Text, Role::Axis, Role::Grid, Role::Mark];
    let roles = fixed
        .into_iter()
        .chain((0..SERIES).map(Role::Series))
        .chain((0..HEAT).map(Role::Heat));
    let mut svg = svg
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "");
    for role in roles {
        let RGBColor(r, g, b) = role.colour();
        let fixed = format!("\"#{r:02X}{g:02X}{b:02X}\"");
        svg = svg.replace(&fixed, &format!("\"var({})\"", role.variable()));
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_becomes_its_variable() {
        assert_eq!(
            finish("<line opacity=\"1\" stroke=\"#010103\"/><text fill=\"#010000\">"),
            "<line stroke=\"var(--s3)\"/><text fill=\"var(--text)\">"
        );
        assert_eq!(Role::Series(13).variable(), "--s3");
        assert_eq!(Role::Heat(99).variable(), "--h15");
    }
}
