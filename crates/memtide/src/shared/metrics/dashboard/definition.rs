//! `deploy/grafana-dashboard.json`, as far as it says what is asked and how it is drawn.

use serde_json::Value;

const TEXT: &str = include_str!("../../../../../../deploy/grafana-dashboard.json");

/// The dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    pub title: String,
    /// Names and labels of its variables, and what Grafana asks for the values of each, if it asks.
    pub variables: Vec<(String, String, Option<String>)>,
    /// What stands for all values of a variable.
    all: Vec<(String, String)>,
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    /// Column, row, width and height on a grid of 24 columns.
    pub at: [u32; 4],
    pub unit: String,
    /// How opaque the area below a line is, in percent.
    pub fill: u64,
    pub stacked: bool,
    pub targets: Vec<Target>,
}

/// A query of a panel.
#[derive(Clone, Debug)]
pub struct Target {
    pub expr: String,
    /// Words, and names of labels in double braces.
    pub legend: String,
}

fn text(value: &Value) -> String {
    value.as_str().expect("words").to_owned()
}

impl Dashboard {
    pub fn read() -> Dashboard {
        let json: Value = serde_json::from_str(TEXT).expect("JSON");
        let list = json["templating"]["list"].as_array().expect("variables");
        let variable = |of: &Value| {
            let asked = of["definition"].as_str().map(str::to_owned);
            (text(&of["name"]), text(&of["label"]), asked)
        };
        let all = |of: &Value| Some((text(&of["name"]), of["allValue"].as_str()?.to_owned()));
        let panels = json["panels"].as_array().expect("panels");
        Dashboard {
            title: text(&json["title"]),
            variables: list.iter().map(variable).collect(),
            all: list.iter().filter_map(all).collect(),
            panels: panels.iter().map(panel).collect(),
        }
    }

    /// `expr` as Grafana asks it of all instances, with rates of `rate_s` seconds.
    ///
    /// # Panics
    /// A variable is left over.
    pub fn filled(&self, expr: &str, rate_s: i64) -> String {
        let mut filled = expr.replace("$__rate_interval", &format!("{rate_s}s"));
        for (name, value) in &self.all {
            filled = filled.replace(&format!("${name}"), value);
        }
        assert!(!filled.contains('$'), "{filled}");
        filled
    }
}

fn panel(json: &Value) -> Panel {
    assert_eq!(json["type"], "timeseries", "the picture has no other");
    let defaults = &json["fieldConfig"]["defaults"];
    assert_eq!(defaults["min"], 0, "the picture begins at 0");
    let custom = &defaults["custom"];
    let at = ["x", "y", "w", "h"].map(|side| json["gridPos"][side].as_u64().expect("a place"));
    let target = |of: &Value| Target {
        expr: text(&of["expr"]),
        legend: text(&of["legendFormat"]),
    };
    Panel {
        title: text(&json["title"]),
        at: at.map(|side| u32::try_from(side).expect("small")),
        unit: text(&defaults["unit"]),
        fill: custom["fillOpacity"].as_u64().expect("percent"),
        stacked: custom["stacking"]["mode"] == "normal",
        targets: json["targets"]
            .as_array()
            .expect("queries")
            .iter()
            .map(target)
            .collect(),
    }
}

impl Target {
    /// The labels that the legend names.
    pub fn labels(&self) -> Vec<&str> {
        let after = self.legend.split("{{").skip(1);
        after
            .map(|rest| rest.split("}}").next().unwrap_or(rest).trim())
            .collect()
    }

    /// The legend of a line that has these labels.
    ///
    /// # Panics
    /// One is missing.
    pub fn legend<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> String {
        let mut legend = self.legend.clone();
        for name in self.labels() {
            let value = label(name).filter(|value| !value.is_empty());
            let value = value.unwrap_or_else(|| panic!("no label {name}: {}", self.expr));
            legend = legend.replace(&format!("{{{{{name}}}}}"), value);
        }
        legend
    }
}

#[test]
fn legends_have_the_values_of_labels() {
    let target = Target {
        expr: String::new(),
        legend: "{{a}} node {{b}}".to_owned(),
    };
    assert_eq!(target.labels(), ["a", "b"]);
    let value = |name: &str| (name == "a").then_some("x").or(Some("2"));
    assert_eq!(target.legend(value), "x node 2");
}

#[test]
#[should_panic(expected = "no label b")]
fn a_legend_without_its_label_is_an_error() {
    let target = Target {
        expr: String::new(),
        legend: "{{b}}".to_owned(),
    };
    target.legend(|_| None);
}

/// A unit says what is asked for: memory, memory a second, or a share.
#[test]
fn queries_are_of_the_unit_that_their_panel_names() {
    for panel in Dashboard::read().panels {
        for Target { expr, .. } in &panel.targets {
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let names: Vec<&str> = expr
                .split(word)
                .filter(|word| word.starts_with("memtide_"))
                .collect();
            let all = |end: &str| names.iter().all(|name| name.ends_with(end));
            let counters = all("_total");
            assert_eq!(counters, expr.contains("rate("), "{expr}");
            let right = match panel.unit.as_str() {
                "bytes" => all("_bytes"),
                // What may move is told as memory a second.
                "Bps" => all("_bytes_total") || all("_limit_bytes"),
                "percentunit" => all("_seconds_total") || all("_ratio") || expr.contains(" / "),
                "short" => counters && !all("_bytes_total") || all("_processes"),
                "none" => all("_ratio"),
                _ => false,
            };
            assert!(!names.is_empty() && right, "{}: {expr}", panel.unit);
        }
    }
}
