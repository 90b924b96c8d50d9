//! The machine's own package sources, read so that more suites of the same archive can be asked.
//!
//! The kernels to test on are in other suites of the distribution than the one installed. The
//! address of the mirror and the key that its signature must match are the machine owner's
//! decision, written down in apt's configuration; we copy both and change the suite only. Two
//! formats exist (sources.list(5)): one line per source, and deb822 stanzas. Both are read into one
//! [`Source`]; [`Source::to_deb822`] writes it back.
//!
//! Pure: text in, values out. What is not a source of binary packages is passed over.

/// One source of binary packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Base addresses.
    pub uris: Vec<String>,
    /// Suites, such as a release's code name.
    pub suites: Vec<String>,
    /// Components, such as `main`.
    pub components: Vec<String>,
    /// Value of Signed-By as written, which may be a key over several lines.
    pub signed_by: Option<String>,
}

impl Source {
    /// The same archive and key with other suites.
    #[must_use]
    pub fn with_suites(&self, suites: &[&str]) -> Self {
        Self {
            suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
            ..self.clone()
        }
    }

    /// One deb822 stanza, empty line included.
    #[must_use]
    pub fn to_deb822(&self) -> String {
        let signed_by = self
            .signed_by
            .as_ref()
            .map(|value| format!("Signed-By:{value}\n"))
            .unwrap_or_default();
        format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\n{signed_by}\n",
            self.uris.join(" "),
            self.suites.join(" "),
            self.components.join(" "),
        )
    }
}

/// Reads the deb822 format: the text of a `*.sources` file.
#[must_use]
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(from_fields(&std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    sources
}

fn from_fields(fields: &[(String, String)]) -> Option<Source> {
    let field = |name: &str| {
        fields
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value)
    };
    let words = |name: &str| -> Vec<String> {
        field(name)
            .map(|value| value.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default()
    };
    let disabled = field("enabled").is_some_and(|value| value.trim() == "no");
    if disabled || !words("types").iter().any(|word| word == "deb") {
        return None;
    }
    Some(Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").cloned(),
    })
}

/// Reads the one-line format: the text of `sources.list` or a `*.list` file.
#[must_use]
pub fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let mut rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None;
    }
    rest = rest.trim_start();
    let mut signed_by = None;
    if let Some(options) = rest.strip_prefix('[') {
        let (inside, after) = options.split_once(']')?;
        signed_by = inside
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .map(|value| format!(" {}", value.replace(',', " ")));
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    Some(Source {
        uris: vec![uri],
        suites: vec![suite],
        components: words.collect(),
        signed_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(signed_by: Option<&str>) -> Source {
        Source {
            uris: vec!["file:/mirror".into()],
            suites: vec!["twelve".into(), "twelve-updates".into()],
            components: vec!["main".into()],
            signed_by: signed_by.map(Into::into),
        }
    }

    #[test]
    fn deb822_stanza_with_comment_and_source_packages() {
        let text = "Types: deb\n# a remark\nURIs: file:/mirror\nSuites: twelve twelve-updates\n\
                    Components: main\nSigned-By: /key.gpg\n\nTypes: deb-src\nURIs: file:/other\n";
        assert_eq!(parse_deb822(text), [source(Some(" /key.gpg"))]);
    }

    #[test]
    fn a_disabled_stanza_is_no_source() {
        assert_eq!(
            parse_deb822("Enabled: no\nTypes: deb\nURIs: u\nSuites: s\n"),
            []
        );
    }

    /// An inline key keeps its lines, each starting with a blank.
    #[test]
    fn inline_key_survives_the_round_trip() {
        let text = "Types: deb\nURIs: file:/mirror\nSuites: twelve twelve-updates\n\
                    Components: main\nSigned-By:\n BEGIN\n .\n END\n";
        let parsed = parse_deb822(text);
        assert_eq!(parsed, [source(Some("\n BEGIN\n .\n END"))]);
        assert_eq!(parse_deb822(&parsed[0].to_deb822()), parsed);
    }

    #[test]
    fn one_line_with_and_without_options() {
        let text = "deb [arch=amd64 signed-by=/key.gpg] file:/mirror twelve main # note\n\
                    deb-src file:/mirror twelve main\n#deb file:/off x y\ndeb file:/plain s main\n";
        let parsed = parse_one_line(text);
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0].signed_by.as_deref(), Some(" /key.gpg"));
        assert_eq!(
            (parsed[1].uris[0].as_str(), parsed[1].suites[0].as_str()),
            ("file:/plain", "s")
        );
    }
}
