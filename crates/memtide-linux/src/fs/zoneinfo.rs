//! Free pages and watermarks of every zone: `/proc/zoneinfo`.
//!
//! A node's memory is split into zones (DMA, DMA32, Normal, Movable). Each
//! zone has watermarks, in pages: below *low* the kernel's reclaim thread
//! wakes, below *min* allocations stall, *high* is where reclaim stops, and
//! *promo*, on kernels that tier memory, is where it stops instead when
//! headroom for promotions is wanted. What memtide may put on a node is
//! decided against these numbers.
//!
//! The file mixes three layouts under one `Node N, zone NAME` heading: the
//! `pages free` block with one name and one number a line, `name: value`
//! lines of the per-CPU lists, and `nr_*` counters. Only the first and the
//! zone's identity are kept. The per-CPU lists have a `high:` of their own,
//! told apart from the watermark by its colon.

use super::kept::Kept;
use super::list::node;
use super::parse::{ParseError, number, quoted, text, words};
use super::{FsError, MOST_BYTES, Result, Root, parse};
use memtide_core::units::NodeId;

/// The file, under the root.
const FILE: &str = "proc/zoneinfo";

/// One zone. All numbers are base pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The node that the zone belongs to.
    pub node: NodeId,
    /// `DMA`, `DMA32`, `Normal`, `Movable` or `Device`.
    pub name: String,
    /// Free pages.
    pub free: Option<u64>,
    /// Watermark: below it only the reclaim path itself may allocate.
    pub min: Option<u64>,
    /// Watermark: below it background reclaim starts.
    pub low: Option<u64>,
    /// Watermark: above it background reclaim stops.
    pub high: Option<u64>,
    /// Watermark up to which reclaim goes on when memory is tiered; older
    /// kernels have it but do not print it.
    pub promo: Option<u64>,
    /// Pages that exist.
    pub present: Option<u64>,
    /// Pages that the allocator hands out.
    pub managed: Option<u64>,
}

/// The zones of one node taken together; `None` where no zone said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSum {
    /// Free pages.
    pub free: Option<u64>,
    /// Sum of the min watermarks.
    pub min: Option<u64>,
    /// Sum of the low watermarks.
    pub low: Option<u64>,
    /// Sum of the high watermarks.
    pub high: Option<u64>,
    /// Sum of the promo watermarks.
    pub promo: Option<u64>,
    /// Pages that exist.
    pub present: Option<u64>,
    /// Pages that the allocator hands out.
    pub managed: Option<u64>,
}

/// One reading, zones in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Every zone, the empty ones included.
    pub zones: Vec<Zone>,
}

impl ZoneInfo {
    /// The zones of `node`.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(move |zone| zone.node == node)
    }

    /// The sums over `node`'s zones, or `None` if it has no zone.
    pub fn sum(&self, node: NodeId) -> Option<NodeSum> {
        self.of(node).map(NodeSum::from).reduce(|a, b| NodeSum {
            free: add(a.free, b.free),
            min: add(a.min, b.min),
            low: add(a.low, b.low),
            high: add(a.high, b.high),
            promo: add(a.promo, b.promo),
            present: add(a.present, b.present),
            managed: add(a.managed, b.managed),
        })
    }
}

impl From<&Zone> for NodeSum {
    fn from(zone: &Zone) -> NodeSum {
        NodeSum {
            free: zone.free,
            min: zone.min,
            low: zone.low,
            high: zone.high,
            promo: zone.promo,
            present: zone.present,
            managed: zone.managed,
        }
    }
}

/// A zone that lacks a number makes the sum unknown, not smaller.
fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_add(b?)
}

/// Parses the file.
pub fn parse(bytes: &[u8]) -> std::result::Result<ZoneInfo, ParseError> {
    let mut zones: Vec<Zone> = Vec::new();
    for (line, content) in parse::lines(bytes) {
        if content.starts_with(b"Node ") {
            zones.push(heading(content, line)?);
            continue;
        }
        let Some(zone) = zones.last_mut() else {
            let problem = format!("{} stands before any zone", quoted(content));
            return Err(ParseError::new(line, "zone", problem));
        };
        let mut fields = words(content).peekable();
        fields.next_if_eq(b"pages");
        let slot = match fields.next() {
            Some(b"free") => ("free", &mut zone.free),
            Some(b"min") => ("min", &mut zone.min),
            Some(b"low") => ("low", &mut zone.low),
            Some(b"high") => ("high", &mut zone.high),
            Some(b"promo") => ("promo", &mut zone.promo),
            Some(b"present") => ("present", &mut zone.present),
            Some(b"managed") => ("managed", &mut zone.managed),
            _ => continue,
        };
        let value = fields.next().unwrap_or_default();
        *slot.1 = Some(number(value, line, slot.0)?);
    }
    Ok(ZoneInfo { zones })
}

/// `Node 0, zone   Normal`
fn heading(content: &[u8], line: usize) -> std::result::Result<Zone, ParseError> {
    let mut fields = words(content).skip(1);
    let id = fields.next().and_then(|id| id.strip_suffix(b","));
    let (Some(id), Some(b"zone"), Some(name), None) =
        (id, fields.next(), fields.next(), fields.next())
    else {
        let problem = format!("{} is not \"Node N, zone NAME\"", quoted(content));
        return Err(ParseError::new(line, "zone", problem));
    };
    Ok(Zone {
        node: node(number(id, line, "node id")?, line, "node id")?,
        name: text(name, line, "zone name")?.to_owned(),
        free: None,
        min: None,
        low: None,
        high: None,
        promo: None,
        present: None,
        managed: None,
    })
}

/// Reads `/proc/zoneinfo`.
pub fn read(root: &Root) -> Result<ZoneInfo> {
    read_kept(&mut kept(root))
}

/// `/proc/zoneinfo`, to be read often.
pub fn kept(root: &Root) -> Kept {
    Kept::new(root, FILE, MOST_BYTES)
}

/// The same of a file that stays open.
pub fn read_kept(file: &mut Kept) -> Result<ZoneInfo> {
    file.parse(parse)?.ok_or_else(|| FsError::Missing {
        path: file.path().to_owned(),
        needed_for: "free pages and watermarks; is procfs mounted?",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_ZONES: &[u8] = b"Node 0, zone    DMA32
  per-node stats
      nr_inactive_anon 1693
  pages free     100
        boost    0
        min      10
        low      12
        high     14
        promo    16
        spanned  500
        present  400
        managed  300
        cma      0
        protection: (0, 0, 4427, 4427, 4427)
      nr_free_pages 100
  pagesets
    cpu: 0
              count:    63
              high:     378
  node_unreclaimable:  0
  start_pfn:           4096
Node 0, zone   Normal
  pages free     1000
        min      20
        low      25
        high     30
        present  4000
        managed  3000
";

    #[test]
    fn the_per_cpu_high_is_not_the_watermark() {
        let info = parse(TWO_ZONES).unwrap();
        let dma32 = &info.zones[0];
        assert_eq!((dma32.node, dma32.name.as_str()), (NodeId(0), "DMA32"));
        assert_eq!((dma32.free, dma32.high), (Some(100), Some(14)));
        assert_eq!(dma32.managed, Some(300));
    }

    #[test]
    fn sums_are_per_node_and_unknown_stays_unknown() {
        let info = parse(TWO_ZONES).unwrap();
        let sum = info.sum(NodeId(0)).unwrap();
        assert_eq!(sum.free, Some(100 + 1000));
        assert_eq!(sum.high, Some(14 + 30));
        // The Normal zone did not print its promo watermark.
        assert_eq!(sum.promo, None);
        assert_eq!(info.sum(NodeId(1)), None);
    }

    #[test]
    fn errors_name_line_and_item() {
        let says = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert_eq!(
            says(b"  pages free 1\n"),
            "1: zone: \"  pages free 1\" stands before any zone"
        );
        assert_eq!(
            says(b"Node 0, zone Normal\n  min many\n"),
            "2: min: \"many\" is not an unsigned number"
        );
        assert_eq!(
            says(b"Node 0, zone Normal\n  min\n"),
            "2: min: \"\" is not an unsigned number"
        );
        assert_eq!(
            says(b"Node 4000, zone Normal\n"),
            "1: node id: node 4000 is not below 1024"
        );
    }
}
