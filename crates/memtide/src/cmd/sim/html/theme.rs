//! Colours of the charts, which follow the reader's light or dark setting: a chart names CSS variables,
//! and the page's style sheet says what each is in light, in dark and on paper.

/// How many colours lines and bars have before they repeat.
pub const SERIES: usize = 10;
/// Steps of the heat map's scale.
pub const HEAT: usize = 16;

/// The colour of the nth series.
pub fn series(n: usize) -> String {
    format!("var(--s{})", n % SERIES)
}

/// The colour of a step of the heat scale, 0 to [`HEAT`] - 1.
pub fn heat(step: usize) -> String {
    format!("var(--h{})", step.min(HEAT - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_repeat_and_heat_ends() {
        assert_eq!(series(13), "var(--s3)");
        assert_eq!(heat(99), "var(--h15)");
    }

    /// Every colour is there for light and for dark.
    #[test]
    fn the_style_sheet_has_every_colour_twice() {
        let style = include_str!("page.css");
        let all = (0..SERIES).map(|n| format!("--s{n}: "));
        for name in all.chain((0..HEAT).map(|n| format!("--h{n}: "))) {
            assert_eq!(style.matches(&name).count(), 2, "{name}");
        }
    }
}
