//! The report of `sim run --report` in a real browser, Chromium without a screen. Where there is none, that
//! is said and the tests are skipped.
//!
//! Pictures are not compared with stored ones: fonts and browsers differ between machines, and every new
//! one would be a failure that means nothing. What has to be right is in the picture whatever the font:
//! bars are as long, lines as high and cells as dark as the JSON document of the same run says, which the
//! tests read from the picture's pixels. And two renders of the same run are the same picture.

#[path = "report/browser.rs"]
mod browser;

use browser::{Browser, Tab, View};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const TELEPHONE: View = View {
    width: 390,
    dark: false,
};
const DESK: View = View {
    width: 1280,
    dark: false,
};
const DARK: View = View {
    width: 390,
    dark: true,
};
/// What is wrong with a page as it is shown.
const CHECKS: &str = include_str!("report/checks.js");

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn tiny() -> String {
    here("tests/data/tiny.toml").display().to_string()
}

/// A run's report and its document.
struct Report {
    folder: tempfile::TempDir,
}

impl Report {
    fn of(arguments: &[&str]) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
            .args(["sim", "run", "--report"])
            .arg(folder.path().join("report.html"))
            .arg("--json")
            .arg(folder.path().join("out.json"))
            .args(arguments)
            .env_remove("MEMTIDE_ROOT")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        Report { folder }
    }

    fn page(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }

    fn document(&self) -> Value {
        let text = std::fs::read_to_string(self.folder.path().join("out.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

/// Names that would be marks of HTML, a long one, and a scenario's other words likewise.
fn odd(folder: &Path) -> String {
    let text = std::fs::read_to_string(tiny()).unwrap();
    let machine = std::fs::read_to_string(here("tests/data/tiny-machine.toml")).unwrap();
    std::fs::write(folder.join("tiny-machine.toml"), machine).unwrap();
    let long = "</script><img src=x onerror=alert(1)> & a name 'that' goes on and on &amp; has "
        .to_owned()
        + &"nospace".repeat(8);
    let text = text
        .replace(
            "title = \"Two",
            "title = \"</title><script>alert(1)</script>Two",
        )
        .replace("document = \"made", "document = \"</style><b>made")
        .replace(
            "samples\"\npghot",
            &format!("{long}\"\nabout = \"<i>\"\npghot"),
        )
        .replace("nobody measured it", "<b>nobody</b>")
        .replace("2_000_000", "200_000");
    assert!(text.contains("onerror") && text.contains("alert(1)</script>Two"));
    let file = folder.join("o\"dd <b> & it's.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn recording(folder: &Path) -> String {
    let mut rows = "time_ns,thread,address,write\n".to_owned();
    for n in 0..4000u64 {
        let page = n * n % 64;
        rows += &format!("{},{},{},0\n", n * 10_000, n % 2, 0x10_0000 + page * 4096);
    }
    let file = folder.join("recording.csv");
    std::fs::write(&file, rows).unwrap();
    file.display().to_string()
}

#[test]
fn every_report_is_readable_on_a_telephone_and_silent() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (odd, csv) = (odd(folder.path()), recording(folder.path()));
    let machine = here("tests/data/tiny-machine.toml").display().to_string();
    let tiny = tiny();
    for arguments in [
        // Several seeds.
        &[&tiny[..], "--seeds", "3"][..],
        // Names out of a file.
        &[&odd],
        // A recording.
        &["--trace", &csv, "--machine", &machine],
        // Several programs.
        &["two-tenants", "--scale", "1/512", "--only", "NUMAB0,NUMAB2"],
        // Rows without series; pages by node; a page of several scenarios; links between nodes.
        &["scale-4g", "--only", "memtide tier"],
        &["page-count", &odd, "--check"],
    ] {
        let report = Report::of(arguments);
        for view in [TELEPHONE, DESK] {
            let tab = browser.open(&report.page(), view);
            let call = format!("{CHECKS}({})", view.width);
            let problems = browser.ask(&tab, &call);
            assert_eq!(
                problems,
                json!([]),
                "{arguments:?} at {} pixels",
                view.width
            );
            let complaints = browser.complaints(&tab);
            assert!(complaints.is_empty(), "{arguments:?}: {complaints:?}");
            browser.close(&tab);
        }
        // On paper nothing scrolls, so everything has to be on the sheet.
        let tab = browser.open(&report.page(), DARK);
        let call = format!("{CHECKS}({})", DARK.width);
        let problems = browser.ask(&tab, &call);
        assert_eq!(problems, json!([]), "{arguments:?} in the dark");
        let paper =
            json!({ "width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        browser.on(&tab, "Emulation.setDeviceMetricsOverride", paper);
        let print = json!({ "media": "print" });
        browser.on(&tab, "Emulation.setEmulatedMedia", print);
        browser.settle(&tab);
        let wide = browser.ask(&tab, "document.documentElement.scrollWidth");
        assert_eq!(wide, 720, "{arguments:?} on paper");
        browser.close(&tab);
    }
}

/// What a browser that shows nothing of what is wrong would pass, too.
#[test]
fn the_browser_complains_of_what_is_wrong() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.html");
    let wrong = "<!doctype html><meta name=viewport content='width=device-width'><body><p style='font-size:\
         9px;color:#ccc'>small</p><div style='width:600px'>wide</div><img src='http://a.invalid/'>\
         <table><tr><td>a</table><script>console.warn('w'); throw 1</script>";
    std::fs::write(&file, wrong).unwrap();
    let tab = browser.open(&file, TELEPHONE);
    let call = format!("{CHECKS}({})", TELEPHONE.width);
    let problems = browser.ask(&tab, &call).to_string();
    for part in [
        "pixels wide",
        "too small",
        "too little contrast",
        "without a box",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    let complaints = browser.complaints(&tab).join("\n");
    for part in ["consoleAPICalled", "exceptionThrown", "http://a.invalid/"] {
        assert!(complaints.contains(part), "{part}: {complaints}");
    }
}

/// The nth chart of a kind, scrolled into view: the place of the box that shows its values.
fn area(browser: &mut Browser, tab: &Tab, kind: &str, n: usize) -> [f64; 4] {
    let find = format!(
        "(() => {{ const chart = document.querySelectorAll('.chart.{kind}')[{n}];\
         chart.scrollIntoView({{ block: 'center' }});\
         const box = (chart.querySelector('.area') || chart).getBoundingClientRect();\
         return [box.left, box.top, box.width, box.height]; }})()"
    );
    let place = browser.ask(tab, &find);
    browser.settle(tab);
    std::array::from_fn(|n| place[n].as_f64().unwrap())
}

/// The lines that the nth chart of a kind shows at the moment; none if it shows nothing.
fn said(browser: &mut Browser, tab: &Tab, kind: &str, n: usize) -> Vec<String> {
    let read = format!(
        "(() => {{ const tip = document.querySelectorAll('.chart.{kind}')[{n}].querySelector('.tip');\
         return tip.hidden ? [] : [...tip.children].map(line => line.textContent.trim()); }})()"
    );
    let lines = browser.ask(tab, &read);
    let lines = lines.as_array().unwrap().iter();
    lines
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

/// The figure after `name: `.
fn figure(lines: &[String], name: &str) -> f64 {
    let found = lines
        .iter()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let found = found.unwrap_or_else(|| panic!("no {name} in {lines:?}"));
    number(found)
}

fn number(text: &str) -> f64 {
    let first = text.split(' ').next().unwrap().replace(',', "");
    first
        .parse()
        .unwrap_or_else(|_| panic!("no figure: {text}"))
}

/// Six digits that count.
fn assert_same(shown: f64, value: f64, what: &str) {
    let near = (shown - value).abs() <= value.abs() * 1e-5;
    assert!(near, "{what}: {shown} is shown, {value} is in the document");
}

fn floats(value: &Value) -> Vec<f64> {
    let all = value.as_array().unwrap().iter();
    all.map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn a_chart_says_the_values_of_the_document() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let report = Report::of(&[&tiny(), "--seeds", "3"]);
    let document = report.document();
    let runs = &document["scenarios"][0]["cases"][0]["configurations"];
    let runs = runs.as_array().unwrap();
    let last = |run: &Value| *floats(&run["series"]["seconds"]).last().unwrap();
    let right = runs.iter().map(last).fold(0.0, f64::max);
    let tab = browser.open(&report.page(), DESK);

    // Charts of all configurations: at the time of a point of one, its value.
    for (n, (series, factor)) in [
        ("pages_migrated", 1.0),
        ("done", 100.0),
        ("fast_share", 100.0),
    ]
    .into_iter()
    .enumerate()
    {
        let [left, top, width, height] = area(&mut browser, &tab, "lines", n);
        for run in runs {
            let name = run["configuration"].as_str().unwrap();
            let seconds = floats(&run["series"]["seconds"]);
            for at in [0, seconds.len() / 3, seconds.len() - 1] {
                // The last point is at the edge; a pixel further is outside.
                let x = left + (seconds[at] / right * width).min(width - 1.0);
                browser.mouse(&tab, x, top + height / 2.0);
                let lines = said(&mut browser, &tab, "lines", n);
                let what = format!("{series} of {name} at {} s", seconds[at]);
                let value = floats(&run["series"][series])[at] * factor;
                assert_same(figure(&lines, name), value, &what);
            }
        }
    }

    // A configuration by itself: traffic and latency by node, and the heat of its pages.
    let run = &runs[0];
    let (seconds, own) = (floats(&run["series"]["seconds"]), last(run));
    for (n, series, factor) in [(3, "bytes_per_s", 1e-9), (4, "latency_ns", 1.0)] {
        let [left, top, width, height] = area(&mut browser, &tab, "lines", n);
        let at = seconds.len() / 2;
        browser.mouse(&tab, left + seconds[at] / own * width, top + height / 2.0);
        let lines = said(&mut browser, &tab, "lines", n);
        assert_same(
            figure(&lines, "simulated time in seconds"),
            seconds[at],
            "time",
        );
        for (node, name) in ["node 0 (fast tier)", "node 1 (slow tier)"]
            .into_iter()
            .enumerate()
        {
            let value = floats(&run["series"][series][node])[at] * factor;
            assert_same(figure(&lines, name), value, series);
        }
    }
    let [left, top, width, height] = area(&mut browser, &tab, "heat", 0);
    for (group, at) in [(0, 0), (3, 5), (7, seconds.len() - 1)] {
        let before = if at == 0 { 0.0 } else { seconds[at - 1] };
        let x = left + (before + seconds[at]) / 2.0 / own * width;
        // Eight groups of 512 pages, and one of 16.
        let y = top + height * (1.0 - (group as f64 + 0.5) * 512.0 / 4112.0);
        browser.mouse(&tab, x, y);
        let lines = said(&mut browser, &tab, "heat", 0);
        assert_eq!(lines[1], "memory, 512 pages");
        let value = run["series"]["heat"][group][at].as_f64().unwrap();
        assert_eq!(
            number(&lines[2]),
            value,
            "heat of group {group} in interval {at}"
        );
    }

    // Bars, and the parts of a bar.
    let [left, top, width, height] = area(&mut browser, &tab, "bars", 0);
    for (n, run) in runs.iter().enumerate() {
        let y = top + height * (n as f64 + 0.5) / runs.len() as f64;
        browser.mouse(&tab, left + width / 2.0, y);
        let lines = said(&mut browser, &tab, "bars", 0);
        let name = run["configuration"].as_str().unwrap();
        let ratio = &run["confidence"]["ratio"];
        assert_same(
            figure(&lines, name),
            ratio["median"].as_f64().unwrap(),
            name,
        );
        assert_same(figure(&lines, "95 %"), ratio["low"].as_f64().unwrap(), name);
        if let Some(published) = run["published"]["ratio"].as_f64() {
            assert_same(figure(&lines, "published"), published, name);
        }
    }
    browser.mouse(&tab, 1.0, 1.0);
    assert!(
        said(&mut browser, &tab, "bars", 0).is_empty(),
        "it is shown after the pointer left"
    );

    // With keys alone: tab until the first chart of lines has the focus, then its first and last point.
    let focused = "document.activeElement === document.querySelector('.chart.lines')";
    let mut presses = 0;
    while browser.ask(&tab, focused) != true {
        browser.key(&tab, "Tab", 9);
        presses += 1;
        assert!(presses < 40, "no key reaches the chart");
    }
    let mut moments: Vec<f64> = runs
        .iter()
        .flat_map(|run| floats(&run["series"]["seconds"]))
        .collect();
    moments.sort_by(f64::total_cmp);
    moments.dedup_by(|a, b| (*a - *b).abs() < 1e-7);
    let first = said(&mut browser, &tab, "lines", 0);
    let time = "simulated time in seconds";
    assert_same(figure(&first, time), moments[0], "the first point");
    for (key, code, moment) in [("ArrowRight", 39, moments[1]), ("End", 35, right)] {
        browser.key(&tab, key, code);
        let lines = said(&mut browser, &tab, "lines", 0);
        assert_same(figure(&lines, time), moment, key);
    }
    browser.key(&tab, "Escape", 27);
    assert!(said(&mut browser, &tab, "lines", 0).is_empty());
    let complaints = browser.complaints(&tab);
    assert!(complaints.is_empty(), "{complaints:?}");

    // With a finger: the value stays when the finger has left, and is within the window.
    let tab = browser.open(&report.page(), TELEPHONE);
    let [left, top, width, height] = area(&mut browser, &tab, "lines", 1);
    browser.tap(&tab, left + width - 1.0, top + height / 2.0);
    let lines = said(&mut browser, &tab, "lines", 1);
    assert_same(
        figure(&lines, "simulated time in seconds"),
        right,
        "a finger at the end",
    );
    let fits = "(() => { const tip = [...document.querySelectorAll('.tip')].find(tip => !tip.hidden)\
                .getBoundingClientRect(); return tip.left >= 0 && tip.right <= innerWidth\
                && document.documentElement.scrollWidth <= innerWidth; })()";
    assert_eq!(
        browser.ask(&tab, fits),
        true,
        "what a chart says leaves the window"
    );
}

/// Reads pixels of pictures. It is a tab of its own: a browser can read PNG files.
struct Pixels {
    tab: Tab,
}

impl Pixels {
    fn of(browser: &mut Browser, picture: &str) -> Pixels {
        let tab = browser.open_url("about:blank", DESK);
        let load = format!(
            "(async () => {{ const image = new Image(); image.src = 'data:image/png;base64,{picture}';\
             await image.decode(); const canvas = new OffscreenCanvas(image.width, image.height);\
             globalThis.brush = canvas.getContext('2d', {{ willReadFrequently: true }});\
             brush.drawImage(image, 0, 0); return 0; }})()"
        );
        browser.ask(&tab, &load);
        Pixels { tab }
    }

    /// The colours of pixels, as CSS writes them.
    fn at(&self, browser: &mut Browser, places: &[(f64, f64)]) -> Vec<String> {
        let read = format!(
            "{}.map(([x, y]) => {{ const [r, g, b] = brush.getImageData(x, y, 1, 1).data;\
             return `rgb(${{r}}, ${{g}}, ${{b}})`; }})",
            json!(places)
        );
        let colours = browser.ask(&self.tab, &read);
        let colours = colours.as_array().unwrap().iter();
        colours
            .map(|colour| colour.as_str().unwrap().to_owned())
            .collect()
    }
}

/// Whether two colours are the same but for the smoothing of a line's edge.
fn are_alike(one: &str, other: &str) -> bool {
    let channels = |colour: &str| -> Vec<i32> {
        let figures = colour.split(|c: char| !c.is_ascii_digit());
        figures.filter_map(|figure| figure.parse().ok()).collect()
    };
    let (one, other) = (channels(one), channels(other));
    one.iter().zip(&other).all(|(a, b)| (a - b).abs() <= 24)
}

/// What a CSS variable is here, as a colour.
fn variable(browser: &mut Browser, tab: &Tab, name: &str) -> String {
    let read = format!(
        "(() => {{ const probe = document.createElement('i'); probe.style.color = 'var({name})';\
         document.body.append(probe); const colour = getComputedStyle(probe).color; probe.remove();\
         return colour; }})()"
    );
    browser.ask(tab, &read).as_str().unwrap().to_owned()
}

/// The box of what a selector finds, in the picture of the whole page.
fn box_of(browser: &mut Browser, tab: &Tab, selector: &str) -> [f64; 4] {
    let read = format!(
        "(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();\
         return [box.left + scrollX, box.top + scrollY, box.width, box.height]; }})()"
    );
    let place = browser.ask(tab, &read);
    std::array::from_fn(|n| place[n].as_f64().unwrap())
}

#[test]
fn a_picture_shows_the_values_of_the_document() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let report = Report::of(&[&tiny()]);
    let document = report.document();
    let runs = &document["scenarios"][0]["cases"][0]["configurations"];
    let runs = runs.as_array().unwrap();
    for view in [DESK, View { dark: true, ..DESK }, TELEPHONE] {
        let tab = browser.open(&report.page(), view);
        let picture = browser.picture(&tab);
        let pixels = Pixels::of(&mut browser, &picture);

        // Bars: from 0 to the longest, which is the published ratio of 1 or ours.
        for (n, run) in runs.iter().enumerate() {
            let selector = format!(".chart.bars .bar:nth-child({}) .track svg", n + 1);
            let [left, top, width, height] = box_of(&mut browser, &tab, &selector);
            let y = (top + height * 0.2).floor();
            let row: Vec<(f64, f64)> = (0..width as u32)
                .map(|x| (left.ceil() + f64::from(x), y))
                .collect();
            let colour = variable(&mut browser, &tab, &format!("--s{n}"));
            let colours = pixels.at(&mut browser, &row);
            let long = colours.iter().filter(|pixel| **pixel == colour).count() as f64;
            let expected = run["ratio"].as_f64().unwrap() * width;
            let what = &run["configuration"];
            assert!(
                (long - expected).abs() <= 3.0,
                "{what}: {long} pixels, not {expected}"
            );
        }

        // Lines: work done under one configuration, once no other line is near it.
        let run = &runs[1];
        let (seconds, done) = (
            floats(&run["series"]["seconds"]),
            floats(&run["series"]["done"]),
        );
        let ends = runs
            .iter()
            .map(|run| *floats(&run["series"]["seconds"]).last().unwrap());
        let right = ends.fold(0.0, f64::max);
        let colour = variable(&mut browser, &tab, "--s1");
        let mark = "[aria-label^=\"Work done\"] .area svg";
        let [left, top, width, height] = box_of(&mut browser, &tab, mark);
        for at in (0..seconds.len()).filter(|&at| (0.2..0.3).contains(&seconds[at])) {
            let x = (left + seconds[at] / right * width).floor();
            let y = top + (1.0 - done[at]) * height;
            let near: Vec<(f64, f64)> = (-2..=2).map(|n| (x, y.floor() + f64::from(n))).collect();
            let colours = pixels.at(&mut browser, &near);
            let found = colours.iter().any(|near| are_alike(near, &colour));
            assert!(found, "no line at {} s: {colours:?}", seconds[at]);
        }

        // Heat: a cell's colour is its rate, by the three powers of ten below the highest.
        let series = &runs[0]["series"];
        let (seconds, parts) = (floats(&series["seconds"]), &series["heat_parts"]);
        let pages: Vec<f64> = parts
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["pages"].as_f64().unwrap())
            .collect();
        assert_eq!(
            pages,
            [512.0, 512.0, 512.0, 512.0, 512.0, 512.0, 512.0, 512.0, 16.0]
        );
        let all: f64 = pages.iter().sum();
        let rate = |group: usize, at: usize| {
            let before = if at == 0 { 0.0 } else { seconds[at - 1] };
            floats(&series["heat"][group])[at] / pages[group] / (seconds[at] - before)
        };
        let rates: Vec<Vec<f64>> = (0..pages.len())
            .map(|group| (0..seconds.len()).map(|at| rate(group, at)).collect())
            .collect();
        let most = rates.iter().flatten().copied().fold(0.0, f64::max);
        let steps: Vec<String> = (0..16)
            .map(|step| variable(&mut browser, &tab, &format!("--h{step}")))
            .collect();
        let [left, top, width, height] = box_of(&mut browser, &tab, ".chart.heat .area svg");
        // The last group is lower than a pixel or two.
        let mut below = 0.0;
        let (mut places, mut expected) = (Vec::new(), Vec::new());
        for (group, rates) in rates.iter().enumerate().take(8) {
            for (at, rate) in rates.iter().enumerate().take(seconds.len() - 1) {
                let before = if at == 0 { 0.0 } else { seconds[at - 1] };
                let x = left + (before + seconds[at]) / 2.0 / seconds.last().unwrap() * width;
                let y = top + height * (1.0 - (below + pages[group] / 2.0) / all);
                places.push((x.floor(), y.floor()));
                // A step either way where a rate is at the edge of two.
                let share = (1.0 + (rate / most).log10() / 3.0) * 16.0;
                expected.push(share.clamp(0.0, 15.0) as usize);
            }
            below += pages[group];
        }
        let colours = pixels.at(&mut browser, &places);
        for ((colour, step), place) in colours.iter().zip(&expected).zip(&places) {
            assert_eq!(*colour, steps[*step], "a cell at {place:?}");
        }
        browser.close(&pixels.tab);
        browser.close(&tab);
    }

    // The same run once more, under another name, is the same picture.
    let again = Report::of(&[&tiny(), "--jobs", "1"]);
    let pages = [&report, &again].map(|report| std::fs::read_to_string(report.page()).unwrap());
    assert!(pages[0] == pages[1], "the same run gives another page");
    let pictures = [
        (&report, DESK),
        (&again, DESK),
        (&again, View { dark: true, ..DESK }),
    ];
    let pictures = pictures.map(|(report, view)| {
        let tab = browser.open(&report.page(), view);
        let picture = browser.picture(&tab);
        browser.close(&tab);
        picture
    });
    assert!(
        pictures[0] == pictures[1],
        "the same page gives another picture"
    );
    assert!(pictures[1] != pictures[2], "dark is as light");
}
