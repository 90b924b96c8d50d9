//! `/proc/PID/smaps`: each mapping with counts of its pages.
//!
//! A block is the line of `maps` followed by `Name: 12 kB` lines and one
//! `VmFlags:` line of two-letter words. The two kinds of line are told apart
//! by their first word: only a count's name ends in a colon.

use super::maps::{Mapping, follows, parse_line};
use crate::fs::parse::{ParseError, Parsed, lines, number, text, words};

/// A mapping and what the kernel counted in it. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The mapping.
    pub mapping: Mapping,
    /// Memory in use.
    pub resident: Option<u64>,
    /// Pages with the accessed bit or the referenced flag.
    pub referenced: Option<u64>,
    /// Anonymous memory in use.
    pub anonymous: Option<u64>,
    /// Anonymous memory in huge pages.
    pub anon_huge: Option<u64>,
    /// Swapped out.
    pub swap: Option<u64>,
    /// The page size that the kernel maps it with; huge only for hugetlb.
    pub kernel_page_size: Option<u64>,
    /// Two-letter flags (`rd`, `wr`, `lo`, `io`, `ht`, ...).
    pub flags: Option<Vec<String>>,
}

impl Usage {
    /// Whether a flag is set; `None` if the kernel prints none.
    pub fn has_flag(&self, flag: &str) -> Option<bool> {
        Some(self.flags.as_ref()?.iter().any(|set| set == flag))
    }
}

/// Parses the file.
pub fn parse(bytes: &[u8]) -> Result<Vec<Usage>, ParseError> {
    let mut blocks: Vec<Usage> = Vec::new();
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        let Some(name) = fields.next().and_then(|word| word.strip_suffix(b":")) else {
            let mapping = parse_line(content, line)?;
            follows(blocks.last().map(|block| &block.mapping), &mapping, line)?;
            blocks.push(Usage {
                mapping,
                resident: None,
                referenced: None,
                anonymous: None,
                anon_huge: None,
                swap: None,
                kernel_page_size: None,
                flags: None,
            });
            continue;
        };
        let Some(block) = blocks.last_mut() else {
            return Err(ParseError::new(
                line,
                text(name, line, "field")?,
                "stands before any mapping",
            ));
        };
        let first = fields.next().unwrap_or_default();
        match name {
            b"Rss" => block.resident = Some(kib(first, line, "Rss")?),
            b"Referenced" => block.referenced = Some(kib(first, line, "Referenced")?),
            b"Anonymous" => block.anonymous = Some(kib(first, line, "Anonymous")?),
            b"AnonHugePages" => block.anon_huge = Some(kib(first, line, "AnonHugePages")?),
            b"Swap" => block.swap = Some(kib(first, line, "Swap")?),
            b"KernelPageSize" => {
                block.kernel_page_size = Some(kib(first, line, "KernelPageSize")?);
            }
            b"VmFlags" => {
                let flags = words(content)
                    .skip(1)
                    .map(|flag| Ok(text(flag, line, "VmFlags")?.to_owned()));
                block.flags = Some(flags.collect::<Parsed<_>>()?);
            }
            _ => {}
        }
    }
    Ok(blocks)
}

fn kib(bytes: &[u8], line: usize, item: &str) -> Parsed<u64> {
    let kib = number(bytes, line, item)?;
    kib.checked_mul(1024)
        .ok_or_else(|| ParseError::new(line, item, format!("{kib} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
        Size:               4096 kB\nKernelPageSize:        4 kB\nRss:                2052 kB\n\
        Anonymous:          2052 kB\nAnonHugePages:      2048 kB\nTHPeligible:           1\n\
        VmFlags: rd wr mr mw me ac sd\n";

    #[test]
    fn a_mapping_with_one_huge_page() {
        let blocks = parse(BLOCK.as_bytes()).unwrap();
        let block = &blocks[0];
        assert_eq!(block.mapping.len(), 4 << 20);
        // One huge page of 2 MiB and one of 4 KiB.
        assert_eq!(block.resident, Some((2 << 20) + 4096));
        assert_eq!(block.anon_huge, Some(2 << 20));
        assert_eq!(block.kernel_page_size, Some(4096));
        assert_eq!(block.swap, None);
        assert_eq!(block.has_flag("wr"), Some(true));
        assert_eq!(block.has_flag("lo"), Some(false));
    }

    #[test]
    fn errors_name_line_and_field() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(says("Rss: 1 kB"), "1: Rss: stands before any mapping");
        assert_eq!(
            says(&BLOCK.replace("2048 kB", "huge")),
            "6: AnonHugePages: \"huge\" is not an unsigned number"
        );
        let twice = format!("{BLOCK}{BLOCK}");
        assert!(says(&twice).starts_with("9: address range:"));
    }
}
