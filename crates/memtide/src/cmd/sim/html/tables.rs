//! Tables of the page. One that is wider than the screen scrolls in its own box, and says so.

use super::escape;
use std::fmt::Write as _;

/// A row: its class in the style sheet, if any, and its cells.
pub struct Row {
    pub class: &'static str,
    pub cells: Vec<String>,
}

impl Row {
    pub fn plain(cells: Vec<String>) -> Row {
        Row { class: "", cells }
    }
}

/// A table; the first cell of each row names the row, and the first `words` columns are no figures.
/// `label` says to those who hear the page what it is.
pub fn table(
    label: &str,
    words: usize,
    head: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = Row>,
) -> String {
    let mut html = String::from("<table>\n<thead><tr>");
    let of_words = |at: usize| {
        if (1..words).contains(&at) {
            " class=\"words\""
        } else {
            ""
        }
    };
    for (at, name) in head.iter().enumerate() {
        let (class, name) = (of_words(at), escape(name.as_ref()));
        let _ = write!(html, "<th scope=\"col\"{class}>{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        let class = match row.class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let _ = write!(html, "<tr{class}>");
        for (at, cell) in row.cells.iter().enumerate() {
            let cell = escape(if cell == "-" { "–" } else { cell });
            let _ = match at {
                0 => write!(html, "<th scope=\"row\">{cell}</th>"),
                _ => write!(html, "<td{}>{cell}</td>", of_words(at)),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>");
    wide(label, &html)
}

/// A box that scrolls sideways, under a hint that is there while the box holds more than it shows.
pub fn wide(label: &str, content: &str) -> String {
    format!(
        "<div class=\"wide\"><p class=\"hint\">The table is wider than the screen: scroll it sideways. →</p>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{content}</div></div>\n",
        escape(label)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_from_outside_are_text() {
        let row = Row::plain(vec!["<b>".to_owned(), "-".to_owned()]);
        let html = table("\"a\"", 1, &["&"], [row]);
        for part in [
            "&quot;a&quot;",
            "<th scope=\"col\">&amp;</th>",
            "&lt;b&gt;",
            "<td>–</td>",
        ] {
            assert!(html.contains(part), "{html}");
        }
    }
}
