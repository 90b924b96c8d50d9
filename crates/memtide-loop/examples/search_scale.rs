//! How long the search takes by size and shape of memory: a table.
//!
//! `cargo run --release -p memtide-loop --example search_scale`
#![expect(
    clippy::disallowed_methods,
    reason = "it compares with the host's time"
)]

#[path = "../tests/toy/mod.rs"]
mod toy;

use memtide_loop::search::Config;
use toy::{FAST, GIB, MIB, Machine, Shape, TIB, Toy};

fn main() {
    let slow = Machine {
        page_us: 50.0,
        span_us: 500.0,
        begin_us: 10_000.0,
        busy: 4.0,
    };
    let range = Shape::Ranges(64 * MIB);
    let cases = [
        ("ranges of 64 MiB", range, 4 * GIB, 1, FAST, 10.0),
        ("ranges of 64 MiB", range, 64 * GIB, 4, FAST, 20.0),
        ("ranges of 64 MiB", range, 4 * TIB, 4, FAST, 60.0),
        (
            "pieces of 2 MiB",
            Shape::Pieces(512),
            4 * GIB,
            1,
            FAST,
            60.0,
        ),
        (
            "pieces of 2 MiB",
            Shape::Pieces(512),
            64 * GIB,
            4,
            FAST,
            60.0,
        ),
        (
            "pieces of 2 MiB",
            Shape::Pieces(512),
            512 * GIB,
            4,
            FAST,
            60.0,
        ),
        (
            "2 MiB unaligned",
            Shape::Ranges(512),
            64 * GIB,
            4,
            FAST,
            f64::NAN,
        ),
        ("scattered", Shape::Scattered, GIB, 1, FAST, f64::NAN),
        ("scattered", Shape::Scattered, 16 * GIB, 1, FAST, f64::NAN),
        ("Zipf", Shape::Zipf(4 * GIB), 4 * GIB, 1, FAST, f64::NAN),
        (
            "1000 processes",
            Shape::First(MIB / 16),
            4 * GIB,
            1000,
            FAST,
            f64::NAN,
        ),
        ("50 times slower", range, 4 * GIB, 1, slow, f64::NAN),
        (
            "50 times slower",
            Shape::Scattered,
            256 * MIB,
            1,
            slow,
            f64::NAN,
        ),
    ];
    println!(
        "{:<18} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}  promise",
        "hot memory", "slow GiB", "90 % s", "target", "bound s", "cold %", "minute %", "host s"
    );
    let only = std::env::args()
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    for (n, (name, shape, pages, owners, machine, target)) in cases.into_iter().enumerate() {
        if only.is_some_and(|only| only != n) {
            continue;
        }
        let host = std::time::Instant::now();
        let mut toy = Toy::new(machine, shape, pages, owners, Config::default());
        let each = pages / u64::from(owners);
        let hot = match shape {
            Shape::Ranges(_) | Shape::Pieces(_) => pages / 64,
            _ => shape.count(0, each) * u64::from(owners),
        };
        toy.run(1_000.0, |_| false);
        let promise = toy.search.promise();
        let took = toy.run(9_000_000.0, |toy| toy.found_hot * 10 >= hot * 9);
        println!(
            "{:<18} {:>8} {:>8.1} {:>8.0} {:>8.0} {:>8.2} {:>8.2} {:>9.1}  {promise}",
            name,
            pages / GIB,
            took.unwrap_or(f64::INFINITY),
            target,
            promise.bound_s,
            toy.found_cold as f64 * 100.0 / (pages - hot) as f64,
            toy.worst_minute() * 100.0,
            host.elapsed().as_secs_f64(),
        );
    }
}
