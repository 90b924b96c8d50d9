//! Text that somebody else chose, on its way to a terminal or a log.

use std::borrow::Cow;

/// `text` on one line: hidden characters as `\u{1b}`, cut after `most` characters,
/// then with its length.
pub fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    let cut = text.char_indices().nth(most).map(|(at, _)| at);
    if cut.is_none() && !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::new();
    for c in text[..cut.unwrap_or(text.len())].chars() {
        match is_hidden(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    if cut.is_some() {
        clean += &format!("... ({} bytes)", text.len());
    }
    Cow::Owned(clean)
}

/// Control characters of both ranges, and what changes how others are shown
/// without being seen: directions, joiners, separators of lines, tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_the_cursor_is_written_out_and_the_rest_is_cut() {
        assert_eq!(one_line("caf\u{e9} 7", 9), "caf\u{e9} 7");
        assert_eq!(one_line("a\x1b[2J\n\u{202e}", 9), r"a\u{1b}[2J\n\u{202e}");
        assert_eq!(one_line("abcdef", 3), "abc... (6 bytes)");
    }
}
