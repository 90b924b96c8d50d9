//! What memtide's own calls cost, and what the kernel does on its behalf.
//!
//! Two tables: [`WorldCosts::BARE`] for current servers, [`WorldCosts::EMULATED`]
//! for the guests of our tests, in which a processor is software. The figures of
//! the second were measured there; those of the first are a page's or a call's
//! usual figure on bare metal, each with its origin. What moving a page costs is
//! the machine's own figure (`Costs::migrate_page_ns`), not one of these.

/// Times in nanoseconds of the real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldCosts {
    /// A region of DAMON and one pass: clearing its page's bit and reading it.
    pub damon_region_ns: u64,
    /// Telling DAMON what to watch and turning a kdamond on.
    pub damon_start_ns: u64,
    /// Telling DAMON of one region, in our time.
    pub damon_span_ns: u64,
    /// Trying out once how this kernel cuts regions.
    pub damon_probe_ns: u64,
    /// A thread that is looked up by its number, or gets an affinity.
    pub thread_ns: u64,
    /// A page of a page-table scan: clearing its bit and reading it.
    pub scan_page_ns: u64,
    /// A process in the list of all.
    pub process_ns: u64,
    /// A mapping of a process with what its owner allows.
    pub area_ns: u64,
    /// A present page that is counted as its mapping is read (`numa_maps`): a
    /// base page, or a huge one.
    pub count_page_ns: u64,
    /// A present page that is found to be present (`PAGEMAP_SCAN`): a base page,
    /// or a huge one.
    pub find_page_ns: u64,
    /// A present page whose node is asked for (`move_pages`): a base page, or a
    /// huge one.
    pub locate_page_ns: u64,
    /// A call of `move_pages` beside its pages.
    pub move_call_ns: u64,
    /// A turn of the loop in which little happens.
    pub turn_ns: u64,
    /// A report or a sample that the loop reads and records.
    pub report_ns: u64,
    /// Loads of a reading of a node's latency; each takes what the node's memory does.
    pub canary_loads: u64,
    /// A reading beside its loads: two looks at the clock a batch, and the lines that
    /// are taken out of the caches.
    pub canary_ns: u64,
}

impl WorldCosts {
    /// A current server.
    pub const BARE: WorldCosts = WorldCosts {
        // 85 to 114 ms a pass of 16,384 pages in the emulated guest are six times this.
        damon_region_ns: 1_000,
        damon_start_ns: 2_000_000,
        // A folder that is made, and two files in it that are written.
        damon_span_ns: 10_000,
        damon_probe_ns: 20_000_000,
        thread_ns: 15_000,
        scan_page_ns: 20,
        process_ns: 15_000,
        area_ns: 2_000,
        // On the development machine 33, 16 and 150 ns, and half of that here.
        count_page_ns: 16,
        find_page_ns: 8,
        locate_page_ns: 75,
        move_call_ns: 3_000,
        turn_ns: 30_000,
        report_ns: 60,
        canary_loads: 160,
        // `cargo run -p memtide-linux --example canary` on the busy development machine, in a build
        // without optimisations: 90 us a reading, of which 34 are its loads. About half of the rest here.
        canary_ns: 30_000,
    };

    /// A guest of our tests.
    pub const EMULATED: WorldCosts = WorldCosts {
        // 350 to 490 ms a pass of 65,536 pages.
        damon_region_ns: 6_400,
        damon_start_ns: 15_000_000,
        // Not measured apart: it is in the figure above.
        damon_span_ns: 0,
        damon_probe_ns: 60_000_000,
        thread_ns: 150_000,
        // 1.8 ms to clear and 0.7 ms to read 16,384 pages.
        scan_page_ns: 150,
        process_ns: 150_000,
        area_ns: 15_000,
        // 34 to 40 ms for 65,536 pages, measured in sum. What the parts cost there was not
        // measured, so that no page is cheaper for being counted.
        count_page_ns: 0,
        find_page_ns: 560,
        locate_page_ns: 0,
        move_call_ns: 60_000,
        turn_ns: 300_000,
        report_ns: 600,
        canary_loads: 160,
        // Not measured there: ten times as much, as of a call or a turn.
        canary_ns: 300_000,
    };
}

impl Default for WorldCosts {
    fn default() -> WorldCosts {
        WorldCosts::BARE
    }
}
