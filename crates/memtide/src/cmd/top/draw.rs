//! The picture: a function of what is shown and of the size of the screen, and of nothing else.
//!
//! From above: who, where and since when; what it costs and what it does; balancing, if that is wanted; memory
//! by tier; what moves a second; classes, or processes; keys. What does not fit is cut, the table first. Names come from outside and go
//! through `outside`. Without colours the chosen row has a mark.

use super::state::{Rate, State};
use crate::shared::control::standing::{Balancing, Class, Node, Process, Standing};
use crate::shared::outside::{self, outside};
use crate::shared::words::amount;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState};
use ratatui::{Frame, Terminal};
use std::time::Duration;

/// Rows from which blocks have a free row between them.
const ROOMY: u16 = 18;
/// The width of a rate's words.
const WORDS: u16 = 24;
/// The most cells of a bar.
const BAR: u16 = 40;
/// The width from which it is shown what has returned.
pub const WIDE: u16 = 95;
/// The width from which it is shown how fast memory serves classes, too.
const WIDER: u16 = 110;
/// Columns of both tables that are shown on any screen; the next one is what has returned.
const COLUMNS: usize = 7;
/// What stands beside a bar, or more where amounts are long.
const BESIDE: u16 = 48;
const KEYS: [&str; 7] = [
    "q, Esc      end",
    "up, k       the row above",
    "down, j     the row below",
    "t, Tab      classes, or processes",
    "s           another order of the rows",
    "p           pause the picture, or go on",
    "?, h        show or hide this",
];

/// Draws `state`.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let gap = u16::from(area.height >= ROOMY);
    let head = head(state, area.width);
    let memory = memory(state, area.width);
    let high = |lines: &[Line<'_>]| Constraint::Length(lines.len() as u16 + gap);
    let rates = 2 * u16::from(!state.rates.is_empty());
    let blocks = [
        high(&head),
        high(&memory),
        Constraint::Length(rates + gap * u16::from(rates > 0)),
        Constraint::Min(0),
        Constraint::Length(u16::from(state.keys)),
    ];
    let [at_head, at_memory, at_rates, at_table, at_keys] = Layout::vertical(blocks).areas(area);
    frame.render_widget(Paragraph::new(head), at_head);
    frame.render_widget(Paragraph::new(memory), at_memory);
    draw_rates(frame, at_rates, state);
    match state.wanted() {
        Some(_) => draw_processes(frame, at_table, state),
        None => draw_classes(frame, at_table, state),
    }
    frame.render_widget(Paragraph::new(keys(state)), at_keys);
    if state.help {
        draw_help(frame, area);
    }
}

/// A picture as text, for a pipe.
///
/// # Errors
/// None that a picture in memory could have.
pub fn page(state: &State, width: u16, height: u16) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| draw(frame, state))?;
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width.max(1)));
    let rows = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    let text: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
    Ok(format!("{}\n", text.join("\n").trim_end()))
}

fn painted(state: &State, color: Color) -> Style {
    match state.styled {
        true => Style::new().fg(color),
        false => Style::new(),
    }
}

fn bold(state: &State) -> Style {
    match state.styled {
        true => Style::new().add_modifier(Modifier::BOLD),
        false => Style::new(),
    }
}

fn head(state: &State, width: u16) -> Vec<Line<'static>> {
    let name = match state.host.is_empty() {
        true => "memtide".to_owned(),
        false => format!("memtide on {}", outside(&state.host)),
    };
    let mut lines = Vec::new();
    match &state.standing {
        None => lines.push(Line::from(name)),
        Some(standing) => lines.extend(about(state, width, name, standing)),
    }
    let trouble = state
        .trouble
        .as_ref()
        .map(|why| format!("old figures: {why}"));
    let refused = state
        .standing
        .as_ref()
        .and_then(|standing| standing.refused.as_ref());
    let refused = refused.map(|why| format!("reload refused: {why}"));
    for what in [trouble, refused].into_iter().flatten() {
        let text = outside::line(&what).into_owned();
        lines.push(Line::styled(text, painted(state, Color::Red)));
    }
    lines
}

fn about(state: &State, width: u16, name: String, standing: &Standing) -> Vec<Line<'static>> {
    let setup = &standing.setup;
    let run = humantime::format_duration(Duration::from_secs(standing.run_ms / 1000));
    let mut first = vec![
        Span::styled(name, bold(state)),
        Span::raw(format!(
            "  run {run}  source {}  gate {}  {} processes of {}",
            outside(&setup.source),
            outside(&setup.gate),
            standing.processes,
            outside(&setup.selected)
        )),
    ];
    if setup.dry_run {
        first.push(Span::styled("  dry run", painted(state, Color::Yellow)));
    }
    let (own, observing) = standing.cpu_percent();
    let mut second = format!(
        "CPU {own:.1} % and {observing:.1} % observing, of {} %  promoted {}  demoted {}",
        setup.observe_cpu_percent,
        amount(standing.promoted_bytes),
        amount(standing.demoted_bytes)
    );
    if width >= WIDE {
        second += &format!("  returned {}", amount(standing.returned_bytes));
    }
    let mut lines = vec![
        Line::from(first),
        Line::from(second),
        Line::from(doing(width, standing)),
    ];
    let known = standing.balancing.as_ref();
    lines.extend(known.map(|known| balancing(state, known)));
    lines
}

/// What balancing does, or why it rests.
fn balancing(state: &State, known: &Balancing) -> Line<'static> {
    if let Some(why) = &known.rests {
        let text = format!("balances nothing: {why}");
        let text = outside::line(&text).into_owned();
        return Line::styled(text, painted(state, Color::Yellow));
    }
    let source = known.source.as_deref().unwrap_or("?");
    let local = u128::from(known.local_accesses) * 100;
    let local = local.checked_div(u128::from(known.accesses));
    let local = local.map_or("no access seen yet".to_owned(), |percent| {
        format!("{percent} % local")
    });
    let mut text = format!(
        "balances by {source}: {local}, moved {}",
        amount(known.moved_bytes)
    );
    if known.placed_threads > 0 {
        let Balancing {
            placed_threads,
            threads,
            ..
        } = known;
        text += &format!(", {placed_threads} of {threads} threads placed");
    }
    Line::from(outside::line(&text).into_owned())
}

/// What the loop does, and what promotion wins and costs if that fits beside it.
fn doing(width: u16, standing: &Standing) -> String {
    let fits = |text: &String| text.chars().count() <= usize::from(width);
    let mut doing = outside(&standing.doing()).into_owned();
    if standing.pressure.is_some_and(|pressure| pressure.slowed) {
        let both = format!("{doing}; memory pressure slows promotion");
        // That is what matters more.
        doing = Some(both)
            .filter(fits)
            .unwrap_or_else(|| "memory pressure slows promotion".to_owned());
    }
    let account = standing.account.as_ref();
    let both = account.map(|account| format!("{doing}; {}", account.now()));
    both.filter(fits).unwrap_or(doing)
}

/// A line for each tier: used of all, as a bar, and what of it is managed.
fn memory(state: &State, width: u16) -> Vec<Line<'static>> {
    let Some(standing) = &state.standing else {
        return Vec::new();
    };
    let tiers = [
        ("fast", true, standing.fast_bytes, Color::Green),
        ("slow", false, standing.slow_bytes, Color::Blue),
    ];
    let mut found = Vec::new();
    for (name, fast, managed, color) in tiers {
        let nodes: Vec<&Node> = standing
            .nodes
            .iter()
            .filter(|node| node.fast == fast)
            .collect();
        if nodes.is_empty() {
            continue;
        }
        let all = nodes
            .iter()
            .map(|node| node.memory_bytes)
            .fold(0, u64::saturating_add);
        let mut free = nodes.iter().map(|node| node.free_bytes);
        let free = free.try_fold(0, |sum: u64, free| Some(sum.saturating_add(free?)));
        let used = free.map(|free| all.saturating_sub(free));
        let text = format!(
            " {} of {} used, {} managed",
            used.map_or("?".to_owned(), amount),
            amount(all),
            amount(managed)
        );
        found.push((name, color, used, all, text));
    }
    let long = |(name, .., text): &(&str, _, _, _, String)| name.len() + 1 + text.len();
    let longest = found.iter().map(long).max().unwrap_or(0) as u16;
    let cells = width.saturating_sub(longest.max(BESIDE)).min(BAR);
    let line = |(name, color, used, all, text): (&str, Color, Option<u64>, u64, String)| {
        let full = match used {
            Some(used) if all > 0 => {
                (u128::from(used) * u128::from(cells) / u128::from(all)) as usize
            }
            _ => 0,
        };
        let rest = usize::from(cells) - full.min(usize::from(cells));
        Line::from(vec![
            Span::raw(format!("{name} ")),
            Span::styled("\u{2588}".repeat(full), painted(state, color)),
            Span::raw("\u{2591}".repeat(rest)),
            Span::raw(text),
        ])
    };
    found.into_iter().map(line).collect()
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let up = |rate: &Rate| rate.promoted;
    let down = |rate: &Rate| rate.demoted;
    let kinds = [
        ("up", up as fn(&Rate) -> u64, Color::Green),
        ("down", down, Color::Blue),
    ];
    for (row, (name, of, color)) in kinds.into_iter().enumerate() {
        let row = row as u16;
        if row >= area.height {
            return;
        }
        let area = Rect::new(area.x, area.y + row, area.width, 1);
        let cells = [Constraint::Length(WORDS), Constraint::Min(0)];
        let [at_words, at_line] = Layout::horizontal(cells).areas(area);
        let last = state.rates.back().map_or(0, of);
        let words = format!("{name:<5}{:>11}/s", amount(last));
        frame.render_widget(Paragraph::new(words), at_words);
        let from = state.rates.len().saturating_sub(usize::from(at_line.width));
        let data: Vec<u64> = state.rates.iter().skip(from).map(of).collect();
        let line = Sparkline::default()
            .data(&data)
            .style(painted(state, color));
        frame.render_widget(line, at_line);
    }
}

fn draw_classes(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let classes = state.classes();
    if classes.is_empty() {
        if state.standing.is_some() {
            let none = Paragraph::new("no classes are configured");
            frame.render_widget(none, area);
        }
        return;
    }
    let names = [
        "class", "uses", "low", "high", "promoted", "demoted", "waiting", "returned", "fast use",
    ];
    let mut widths = [Constraint::Length(10); COLUMNS + 2];
    widths[0] = Constraint::Min(8);
    widths[COLUMNS + 1] = Constraint::Length(11);
    let rows = classes.into_iter().map(row);
    draw_table(frame, area, state, (names, widths), rows);
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if let Some(why) = &state.no_processes {
        let text = format!("no processes: {}", outside::line(why));
        let line = Line::styled(text, painted(state, Color::Red));
        frame.render_widget(Paragraph::new(line), area);
        return;
    }
    let names = [
        "pid", "process", "class", "fast", "slow", "promoted", "demoted", "returned",
    ];
    let mut widths = [Constraint::Length(10); COLUMNS + 1];
    widths[0] = Constraint::Length(7);
    widths[1] = Constraint::Min(8);
    widths[2] = Constraint::Max(12);
    let rows = state.processes().into_iter().map(process_row);
    draw_table(frame, area, state, (names, widths), rows);
}

fn draw_table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &State,
    (names, widths): ([&'static str; N], [Constraint; N]),
    rows: impl Iterator<Item = [String; N]>,
) {
    let more = usize::from(area.width >= WIDE) + usize::from(area.width >= WIDER);
    let shown = (COLUMNS + more).min(N);
    let header = names.map(|name| Line::styled(name, bold(state)));
    let header = header.into_iter().take(shown);
    let rows = rows.map(|cells| Row::new(cells.into_iter().take(shown)));
    let table = Table::new(rows, &widths[..shown])
        .header(Row::new(header))
        .highlight_symbol("> ")
        .row_highlight_style(bold(state));
    let mut chosen = TableState::new().with_selected(state.chosen());
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn process_row(process: &Process) -> [String; COLUMNS + 1] {
    [
        process.pid.to_string(),
        outside(&process.name).into_owned(),
        process
            .class
            .as_ref()
            .map_or("-".to_owned(), |class| outside(class).into_owned()),
        amount(process.fast_bytes),
        amount(process.slow_bytes),
        amount(process.promoted_bytes),
        amount(process.demoted_bytes),
        amount(process.returned_bytes),
    ]
}

fn row(class: &Class) -> [String; COLUMNS + 2] {
    [
        outside(&class.name).into_owned(),
        class.fast_bytes.map_or("?".to_owned(), amount),
        amount(class.low_bytes),
        class.high_bytes.map_or("-".to_owned(), amount),
        amount(class.promoted_bytes),
        amount(class.demoted_bytes),
        match class.state() {
            "" => amount(class.waiting_bytes),
            state => state.to_owned(),
        },
        amount(class.returned_bytes),
        class.served(),
    ]
}

fn keys(state: &State) -> Line<'static> {
    let paused = if state.paused { "  PAUSED" } else { "" };
    let other = match state.wanted() {
        Some(_) => "classes",
        None => "processes",
    };
    let text = format!(
        "q end  t {other}  s order: {}  p pause  ? keys{paused}",
        state.order()
    );
    Line::from(text)
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let wide = KEYS
        .iter()
        .map(|key| key.len() as u16 + 4)
        .max()
        .unwrap_or(0);
    let high = KEYS.len() as u16 + 2;
    let (width, height) = (wide.min(area.width), high.min(area.height));
    let at = Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    );
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|key| Line::from(format!(" {key}")))
        .collect();
    frame.render_widget(Clear, at);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" keys ")),
        at,
    );
}

#[cfg(test)]
mod tests {
    use super::super::state::Key;
    use super::*;
    use crate::shared::control::standing::tests::standing;
    use crate::shared::outside::HOSTILE;
    use memtide_linux::text::is_hidden;
    use proptest::prelude::*;

    fn state() -> State {
        let mut state = State::new("mill".to_owned(), false);
        for second in 1..20 {
            state.hear(Standing {
                run_ms: second * 1000,
                promoted_bytes: (second * second) << 20,
                demoted_bytes: second << 20,
                ..standing()
            });
        }
        state
    }

    #[test]
    fn a_terminal_of_the_usual_size_has_all() {
        let text = page(&state(), 80, 24).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..8],
            [
                "memtide on mill  run 19s  source DAMON  gate pghot  3 processes of all",
                "CPU 2.1 % and 6.3 % observing, of 5 %  promoted 361.0 MiB  demoted 19.0 MiB",
                "rests, and glances at few pages until one of them is hot",
                "balances by pebs: 90 % local, moved 96.0 MiB, 4 of 9 threads placed",
                "",
                "fast \u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2591}\u{2591}\u{2591}\u{2591} 7.0 GiB of 8.0 GiB used, 3.0 GiB managed",
                "slow \u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591}\u{2591} ? of 8.0 GiB used, 1.0 GiB managed",
                "",
            ]
        );
        // The last second's: 361 - 324 MiB up, 1 MiB down.
        assert!(lines[8].starts_with("up      37.0 MiB/s"), "{}", lines[8]);
        assert!(lines[9].starts_with("down     1.0 MiB/s"), "{}", lines[9]);
        assert!(lines[11].starts_with("class "), "{text}");
        assert!(lines[12].starts_with("batch  "), "{text}");
        assert!(lines[13].contains("300.0 MiB"), "{text}");
        assert_eq!(
            lines[23],
            "q end  t processes  s order: name  p pause  ? keys"
        );
    }

    #[test]
    fn processes_have_a_row_each() {
        let mut state = state();
        state.press(Key::Table);
        let process = |pid, name: &str, fast_bytes| Process {
            pid,
            name: name.to_owned(),
            class: Some("db".to_owned()),
            fast_bytes,
            slow_bytes: 3 << 30,
            promoted_bytes: 5 << 20,
            demoted_bytes: 0,
            returned_bytes: 2 << 20,
            ..Process::default()
        };
        state.hear_processes(vec![
            process(17, HOSTILE, 1),
            process(4711, "redis", 2 << 30),
        ]);
        state.press(Key::Down);
        let text = page(&state, 80, 24).unwrap();
        let row = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let lines: Vec<&str> = text.lines().collect();
        let names = "pid process class fast slow promoted demoted";
        assert_eq!(row(lines[11]), row(names), "{text}");
        let redis = "> 4711 redis db 2.0 GiB 3.0 GiB 5.0 MiB 0 KiB";
        assert_eq!(row(lines[12]), row(redis), "{text}");
        assert!(
            !text.contains(|c: char| is_hidden(c) && c != '\n'),
            "{text:?}"
        );
        assert_eq!(
            lines[23],
            "q end  t classes  s order: fast  p pause  ? keys"
        );
    }

    /// A page for a pipe has them, and the usual terminal has no room.
    #[test]
    fn wide_ones_show_what_has_returned() {
        let mut state = state();
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = page(&state, 100, 24).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].ends_with("  demoted 19.0 MiB  returned 32.0 MiB"),
            "{text}"
        );
        let names = "class uses low high promoted demoted waiting returned";
        assert_eq!(row(lines[11]), names, "{text}");
        let db = "db 2.0 GiB 1.0 GiB - 300.0 MiB 0 KiB 0 KiB 16.0 MiB";
        assert_eq!(row(lines[13]), db, "{text}");
        let wider = page(&state, WIDER, 24).unwrap();
        let lines: Vec<&str> = wider.lines().collect();
        assert_eq!(row(lines[11]), format!("{names} fast use"), "{wider}");
        assert!(row(lines[12]).ends_with(" 12 % pages"), "{wider}");
        assert_eq!(row(lines[13]), format!("{db} 95 % acc."), "{wider}");
        state.press(Key::Table);
        state.hear_processes(vec![Process {
            pid: 7,
            name: "redis".to_owned(),
            returned_bytes: 2 << 20,
            ..Process::default()
        }]);
        let text = page(&state, WIDE, 24).unwrap();
        let redis = "7 redis - 0 KiB 0 KiB 0 KiB 0 KiB 2.0 MiB";
        assert!(text.lines().any(|line| row(line) == redis), "{text}");
        for narrow in [WIDE - 1, 80] {
            let text = page(&state, narrow, 24).unwrap();
            assert!(!text.contains("returned"), "{text}");
        }
    }

    #[test]
    fn where_balancing_rests_it_says_why() {
        let mut state = State::new("mill".to_owned(), false);
        let line = |state: &State| {
            let text = page(state, 200, 24).unwrap();
            text.lines().nth(3).unwrap_or_default().to_owned()
        };
        let mut hear = |balancing| {
            state.hear(Standing {
                balancing,
                ..standing()
            });
            line(&state)
        };
        let rests = Balancing {
            rests: Some(HOSTILE.to_owned()),
            ..Balancing::default()
        };
        let said = hear(Some(rests));
        assert!(said.starts_with("balances nothing: "), "{said}");
        assert!(crate::shared::outside::shows_hostile(&said), "{said:?}");
        let begins = Balancing {
            source: Some("writes".to_owned()),
            ..Balancing::default()
        };
        let wanted = "balances by writes: no access seen yet, moved 0 KiB";
        assert_eq!(hear(Some(begins)), wanted);
        assert_eq!(hear(None), "");
    }

    #[test]
    fn a_small_one_has_the_head_and_the_classes() {
        let mut state = state();
        state.press(Key::Down);
        state.press(Key::Down);
        let text = page(&state, 40, 12).unwrap();
        assert!(
            text.starts_with("memtide on mill  run 19s  source DAMON"),
            "{text}"
        );
        assert!(text.contains("\n> db"), "{text}");
        assert_eq!(text.lines().count(), 12, "{text}");
    }

    #[test]
    fn a_large_one_has_wide_bars_and_the_keys() {
        let mut state = state();
        state.press(Key::Help);
        let text = page(&state, 200, 50).unwrap();
        assert!(
            text.contains(&format!("fast {}", "\u{2588}".repeat(35))),
            "{text}"
        );
        for key in KEYS {
            assert!(text.contains(key), "{text}");
        }
        assert_eq!(text.lines().count(), 50);
    }

    #[test]
    fn the_account_is_shown_where_it_fits() {
        let line = "rests, and glances at few pages until one of them is hot";
        let account = "; wins 12.3 ms a second, spends 4.1, 1 process rests";
        let whole = format!("{line}{account}");
        let width = whole.len() as u16;
        assert_eq!(doing(width, &standing()), whole);
        assert_eq!(doing(width - 1, &standing()), line);
    }

    #[test]
    fn that_promotion_is_slowed_comes_first_where_little_fits() {
        let mut one = standing();
        one.pressure.as_mut().unwrap().slowed = true;
        let slow = "memory pressure slows promotion";
        assert!(doing(200, &one).contains(&format!("is hot; {slow}; wins ")));
        assert_eq!(doing(80, &one), slow);
    }

    #[test]
    fn what_goes_wrong_is_shown() {
        let mut state = state();
        state.lost("no memtide serve answers".to_owned());
        state.press(Key::Pause);
        let text = page(&state, 80, 24).unwrap();
        assert!(
            text.contains("\nold figures: no memtide serve answers\n"),
            "{text}"
        );
        assert!(text.ends_with("PAUSED\n"), "{text}");
        state.hear(standing());
        state.press(Key::Pause);
        let mut refused = standing();
        refused.refused = Some("a.toml:1:1: wrong".to_owned());
        refused.setup.dry_run = true;
        state.hear(refused);
        let text = page(&state, 100, 24).unwrap();
        assert!(
            text.contains("\nreload refused: a.toml:1:1: wrong\n"),
            "{text}"
        );
        assert!(
            text.lines().next().unwrap().ends_with("  dry run"),
            "{text}"
        );
        let empty = page(&State::new(String::new(), false), 80, 24).unwrap();
        assert!(empty.starts_with("memtide\n"), "{empty}");
    }

    #[test]
    fn colours_are_only_for_who_wants_them() {
        let styles = |styled: bool| {
            let mut state = state();
            state.styled = styled;
            state.press(Key::Down);
            state.lost("x".to_owned());
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &state)).unwrap();
            let buffer = terminal.backend().buffer();
            let plain = |cell: &&ratatui::buffer::Cell| {
                cell.fg == Color::Reset && cell.bg == Color::Reset && cell.modifier.is_empty()
            };
            buffer.content().iter().filter(|cell| !plain(cell)).count()
        };
        assert_eq!(styles(false), 0);
        assert!(styles(true) > 0);
    }

    #[test]
    fn what_others_chose_is_written_out() {
        let mut one = standing();
        one.classes[0].name = HOSTILE.to_owned();
        one.setup.selected = HOSTILE.to_owned();
        one.refused = Some(HOSTILE.to_owned());
        let mut state = State::new(HOSTILE.to_owned(), true);
        state.hear(one);
        state.lost(HOSTILE.to_owned());
        state.show_processes();
        state.lose_processes(HOSTILE.to_owned());
        let text = page(&state, 300, 50).unwrap();
        assert!(
            !text.contains(|c: char| is_hidden(c) && c != '\n'),
            "{text:?}"
        );
    }

    #[test]
    fn long_amounts_are_not_cut() {
        let mut state = state();
        let standing = state.standing.as_mut().unwrap();
        standing.fast_bytes = 850 << 30;
        for node in &mut standing.nodes {
            (node.memory_bytes, node.free_bytes) = (1000 << 30, Some(500 << 30));
        }
        let text = page(&state, 80, 24).unwrap();
        // 80 - 53 are left for the bar, and half of that is full.
        let bar = format!("{}{}", "\u{2588}".repeat(13), "\u{2591}".repeat(14));
        let fast = format!("\nfast {bar} 500.0 GiB of 1000.0 GiB used, 850.0 GiB managed\n");
        assert!(text.contains(&fast), "{text}");
        let slow = format!("\nslow {bar} 500.0 GiB of 1000.0 GiB used, 1.0 GiB managed\n");
        assert!(text.contains(&slow), "{text}");
    }

    /// Every small size; of large ones some.
    #[test]
    fn no_size_is_too_small() {
        let mut states = [state(), State::new(String::new(), true), state(), state()];
        states[2].press(Key::Help);
        states[3].standing.as_mut().unwrap().classes.clear();
        states[3].hear_processes(vec![Process::default(); 3]);
        for state in &states {
            for width in 1..=45 {
                for height in 1..=16 {
                    page(state, width, height).unwrap();
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_size_has_a_picture(width in 1u16..400, height in 1u16..150, help: bool, classes in 0usize..40, row in 0usize..50) {
            let mut state = state();
            let standing = state.standing.as_mut().unwrap();
            let class = standing.classes[0].clone();
            standing.classes = (0..classes).map(|number| Class { name: format!("c{number:02}"), fast_bytes: Some(u64::MAX), ..class.clone() }).collect();
            state.help = help;
            (0..row).for_each(|_| { state.press(Key::Down); });
            let text = page(&state, width, height).unwrap();
            prop_assert!(text.lines().count() <= usize::from(height));
        }
    }
}
