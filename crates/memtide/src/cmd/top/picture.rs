//! `docs/top.svg`: what `memtide top` draws of a status, as a picture for the pages.
//!
//! A cell is [`CELL`] large whatever the reader's font is, so that columns stay columns: each piece of text has its
//! place and its length. A piece is what stands between two blanks or more, in one style. Cells that are full in
//! part, of bars and rates, become rectangles, because fonts draw them with gaps. The picture has a dark
//! ground of its own, and needs nothing else than itself.
//!
//! It is drawn anew by each run of the tests, and compared. [`AGAIN`] writes it.

use super::draw::{WIDE, draw};
use super::state::State;
use crate::shared::control::standing::Standing;
use crate::shared::kept_pictures;
use crate::shared::markup::escaped;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// The command that writes the picture.
const AGAIN: &str = "SNAPSHOTS=overwrite cargo test -p memtide --bin memtide top::picture";
const STATUS: &str = include_str!("../../../tests/data/top.json");
/// Columns and rows of the terminal: as few as show all, so that text is large on a narrow screen.
const SIZE: (u16, u16) = (74, 18);
/// Width and height of a cell, and what is free around all cells.
const CELL: (usize, usize) = (10, 20);
const MARGIN: usize = 12;
/// What is free above a block, so that those of two rows are told apart.
const GAP: usize = 2;
/// From the top of a cell to the line on which letters stand.
const LINE: usize = 15;
const GROUND: &str = "#15181c";
/// What was promoted and demoted in each second before the status, in MiB.
const MOVED: [(u64, u64); 50] = [
    (0, 0),
    (4, 0),
    (31, 0),
    (290, 12),
    (610, 60),
    (822, 180),
    (904, 251),
    (871, 262),
    (790, 240),
    (702, 231),
    (611, 220),
    (540, 190),
    (452, 171),
    (371, 160),
    (302, 120),
    (261, 101),
    (212, 90),
    (181, 72),
    (140, 61),
    (122, 40),
    (101, 42),
    (84, 30),
    (71, 31),
    (60, 20),
    (52, 22),
    (40, 11),
    (41, 12),
    (31, 10),
    (30, 4),
    (24, 8),
    (180, 40),
    (420, 131),
    (561, 180),
    (530, 202),
    (441, 190),
    (350, 161),
    (271, 130),
    (204, 101),
    (150, 72),
    (112, 60),
    (90, 41),
    (71, 30),
    (60, 22),
    (52, 20),
    (61, 21),
    (50, 12),
    (42, 20),
    (48, 11),
    (40, 14),
    (44, 12),
];

/// The status of a machine with two sockets and an expander, after a minute in which its hot memory changed.
fn state() -> State {
    let last: Standing = serde_json::from_str(STATUS).expect("a status");
    let mut state = State::new("mill".to_owned(), true);
    let left = |from: usize, of: fn(&(u64, u64)) -> u64| -> u64 {
        MOVED[from..].iter().map(of).sum::<u64>() << 20
    };
    for seconds in 0..=MOVED.len() {
        state.hear(Standing {
            run_ms: last.run_ms - (MOVED.len() - seconds) as u64 * 1000,
            promoted_bytes: last.promoted_bytes - left(seconds, |moved| moved.0),
            demoted_bytes: last.demoted_bytes - left(seconds, |moved| moved.1),
            ..last.clone()
        });
    }
    state
}

fn drawn(state: &State) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).expect("a terminal");
    terminal
        .draw(|frame| draw(frame, state))
        .expect("a picture in memory");
    terminal.backend().buffer().clone()
}

/// A picture of the cells. `title` and `about` are for who does not see it.
fn svg(cells: &Buffer, title: &str, about: &str) -> String {
    let columns = usize::from(cells.area.width);
    let rows = cells.content().chunks(columns);
    let (width, height) = (
        columns * CELL.0 + 2 * MARGIN,
        rows.len() * CELL.1 + 2 * MARGIN,
    );
    let (title, about) = (escaped(title), escaped(about));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"16.5\" \
         role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">{title}</title>\n<desc id=\"d\">{about}</desc>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    let mut blocks = String::new();
    for (number, row) in rows.enumerate() {
        let top = MARGIN + number * CELL.1;
        for (at, piece) in pieces(row) {
            let left = MARGIN + at * CELL.0;
            match part(piece[0].symbol()) {
                Some(part) => blocks += &block(left, top, piece, part),
                None => svg += &text(left, top, piece),
            }
        }
    }
    // Or there would be lines between those that touch.
    svg + "<g shape-rendering=\"crispEdges\">\n" + &blocks + "</g>\n</svg>\n"
}

/// The pieces of a row, and in which column each begins: equal blocks, or words of one style with single
/// blanks between them.
fn pieces(row: &[Cell]) -> Vec<(usize, &[Cell])> {
    let blank = |at: usize| row.get(at).is_none_or(|cell| cell.symbol() == " ");
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < row.len() {
        if blank(at) {
            at += 1;
            continue;
        }
        let first = &row[at];
        let goes_on = |next: usize| match part(first.symbol()) {
            Some(_) => row[next] == *first,
            None if blank(next) => !blank(next + 1) && goes_with(&row[next + 1], first),
            None => goes_with(&row[next], first),
        };
        let end = (at + 1..row.len()).find(|&next| !goes_on(next));
        let end = end.unwrap_or(row.len());
        pieces.push((at, &row[at..end]));
        at = end;
    }
    pieces
}

/// Whether this letter belongs to the words that begin with `first`.
fn goes_with(cell: &Cell, first: &Cell) -> bool {
    part(cell.symbol()).is_none() && (cell.fg, cell.modifier) == (first.fg, first.modifier)
}

/// Equal blocks as one rectangle.
fn block(left: usize, top: usize, piece: &[Cell], (eighths, opacity): (usize, &str)) -> String {
    let (color, width) = (color(piece[0].fg), piece.len() * CELL.0);
    let high = (CELL.1 - GAP) as f64 * eighths as f64 / 8.0;
    let y = (top + CELL.1) as f64 - high;
    format!(
        "<rect x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{high}\" fill=\"{color}\"{opacity}/>\n"
    )
}

/// Words, as long as their cells.
fn text(left: usize, top: usize, piece: &[Cell]) -> String {
    let (color, length) = (color(piece[0].fg), piece.len() * CELL.0);
    let words: String = piece.iter().map(Cell::symbol).collect();
    let weight = match piece[0].modifier {
        Modifier::BOLD => " font-weight=\"bold\"",
        plain if plain.is_empty() => "",
        other => panic!("the picture has no {other:?}"),
    };
    let (y, words) = (top + LINE, escaped(&words));
    format!(
        "<text x=\"{left}\" y=\"{y}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{color}\"{weight}>{words}</text>\n"
    )
}

/// Of a cell that is full in part: how many eighths of it from below, and how that looks.
fn part(symbol: &str) -> Option<(usize, &'static str)> {
    match symbol {
        "\u{2591}" => Some((8, " fill-opacity=\"0.25\"")),
        _ => {
            let eighths = "\u{2581}\u{2582}\u{2583}\u{2584}\u{2585}\u{2586}\u{2587}\u{2588}";
            let mut eighths = eighths.chars().zip(1..);
            let found = eighths.find(|(block, _)| symbol.chars().eq([*block]))?;
            Some((found.1, ""))
        }
    }
}

/// A terminal's colour on the dark ground.
fn color(color: Color) -> &'static str {
    match color {
        Color::Reset => "#e4e7ea",
        Color::Green => "#4cc48b",
        Color::Blue => "#6aa9ec",
        Color::Red => "#f2777a",
        Color::Yellow => "#dfc24a",
        other => panic!("the picture has no {other:?}"),
    }
}

#[test]
fn the_picture_of_the_pages_is_what_is_drawn() {
    let about = "A terminal: the service's use of processors, what it has moved, how full fast and slow \
                 memory are, what moves in a second, and four classes with what they use and their shares.";
    let now = svg(&drawn(&state()), "memtide top", about);
    kept_pictures::compare("top.svg", &now, "memtide top draws", AGAIN);
}

/// What is cut misleads. A wider terminal shows the same words, but for the rates.
#[test]
fn all_fits() {
    let words = |width| {
        let page = super::draw::page(&state(), width, SIZE.1).unwrap();
        let page = page.replace(['\u{2588}', '\u{2591}'], " ");
        let lines = page.lines().filter(|line| !line.contains("iB/s"));
        let words = lines.flat_map(str::split_whitespace).map(str::to_owned);
        words.collect::<Vec<_>>()
    };
    assert_eq!(words(SIZE.0), words(WIDE - 1));
}

#[test]
fn columns_are_where_they_are_on_the_terminal() {
    let mut cells = Buffer::with_lines(["a<b c  d \u{2588}\u{2588}\u{2584}"]);
    cells[(7, 0)].set_fg(Color::Green);
    let svg = svg(&cells, "t&t", "d");
    let elements: Vec<&str> = svg.lines().skip(4).collect();
    let text = |x, length, color, words| {
        format!(
            "<text x=\"{x}\" y=\"27\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{color}\">{words}</text>"
        )
    };
    // Margin 12, and 10 for each column: the d is in column 7, blocks of 18 are in 9 to 11, the last half as high.
    assert_eq!(
        elements,
        [
            &text(12, 50, "#e4e7ea", "a&lt;b c"),
            &text(82, 10, "#4cc48b", "d"),
            "<g shape-rendering=\"crispEdges\">",
            "<rect x=\"102\" y=\"14\" width=\"20\" height=\"18\" fill=\"#e4e7ea\"/>",
            "<rect x=\"122\" y=\"23\" width=\"10\" height=\"9\" fill=\"#e4e7ea\"/>",
            "</g>",
            "</svg>",
        ]
    );
    assert!(svg.contains("<title id=\"t\">t&amp;t</title>"), "{svg}");
}
