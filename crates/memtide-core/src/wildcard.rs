//! Patterns with stars, matched in bounded time.
//!
//! A hostile program chooses its own name, so a match takes at most the product of both
//! lengths: a star that turns out to be too short is made longer, and only the last one.
//! What comes after a later star need not know where an earlier one ended.

/// Whether `whole` is one of those that `pattern` stands for: a star is any number of
/// elements, everything else the elements that are the `same`.
pub fn matches<P, T>(
    pattern: &[P],
    whole: impl Iterator<Item = T> + Clone,
    is_star: impl Fn(&P) -> bool,
    same: impl Fn(&P, &T) -> bool,
) -> bool {
    let mut at = 0;
    let mut rest = whole;
    // Behind the last star, and what it does not stand for yet.
    let mut last = None;
    loop {
        let mut after = rest.clone();
        let Some(next) = after.next() else {
            return pattern[at..].iter().all(is_star);
        };
        match pattern.get(at) {
            Some(star) if is_star(star) => {
                at += 1;
                last = Some((at, after));
            }
            Some(one) if same(one, &next) => {
                at += 1;
                rest = after;
            }
            _ => {
                let Some((behind, longer)) = &mut last else {
                    return false;
                };
                at = *behind;
                rest = longer.clone();
                longer.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pattern: &str, text: &str) -> bool {
        let pattern: Vec<char> = pattern.chars().collect();
        matches(&pattern, text.chars(), |c| *c == '*', |a, b| a == b)
    }

    /// By trying everything.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => {
                model(rest, text) || (!text.is_empty() && model(pattern, &text[1..]))
            }
            ([one, rest @ ..], [first, after @ ..]) => one == first && model(rest, after),
            _ => false,
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!of(&format!("{}b", "*a".repeat(100)), &"a".repeat(4000)));
        assert!(of(&"*a".repeat(100), &"a".repeat(4000)));
    }

    proptest! {
        #[test]
        fn it_is_what_trying_everything_says(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(of(&pattern, &text), model(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
