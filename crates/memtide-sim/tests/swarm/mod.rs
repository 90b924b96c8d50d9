//! A swarm: random small machines, regions, policies and configurations, random accesses and calls, and
//! after each step a look at the whole kernel.
//!
//! All choices come from a seed, or from the bytes of a fuzzer; the same choices make the same case.
//! Memory that is out is an outcome like others. What fails is a broken conservation law, a page that
//! faults without end, a translation that outlived its page, an access that finds content which is not the
//! page's, or a panic. Half of the cases run through
//! the engine with its TLBs, caches and samplers (`through.rs`), half call the kernel directly
//! (`direct.rs`). What a case is made of is drawn in `draw.rs`.

mod direct;
pub mod draw;
mod events;
mod through;

pub use draw::{Case, case};
use memtide_sim::kernel::{Kernel, KernelError};
use memtide_sim::rng::Rng;

/// Where choices come from: bytes as long as there are some, then a generator.
pub struct Choices<'a> {
    bytes: &'a [u8],
    rng: Rng,
}

impl<'a> Choices<'a> {
    /// Choices of a seed.
    pub fn of_seed(seed: u64) -> Choices<'a> {
        Choices {
            bytes: &[],
            rng: Rng::new(seed, 0),
        }
    }

    /// Choices of a fuzzer.
    #[allow(dead_code)]
    pub fn of_bytes(bytes: &'a [u8]) -> Choices<'a> {
        Choices {
            bytes,
            rng: Rng::new(0, 0),
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        match self.bytes {
            [a, b, rest @ ..] => {
                self.bytes = rest;
                u32::from(u16::from_le_bytes([*a, *b])) % limit
            }
            _ => self.rng.below(limit),
        }
    }

    fn within(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    /// One time in `n`.
    fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u32) as usize]
    }
}

/// How a case ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// All quanta ran.
    Done,
    /// The workload needed more memory than there is.
    OutOfMemory,
}

/// Makes a case and runs it; panics with what does not hold.
pub fn run(choices: &mut Choices<'_>) -> Ended {
    let case = case(choices);
    let ended = match case.engine {
        true => through::run(&case, choices),
        false => direct::run(&case, choices),
    };
    match ended {
        Ok(()) => Ended::Done,
        Err(KernelError::OutOfMemory { .. }) => Ended::OutOfMemory,
        Err(error) => panic!("{error}"),
    }
}

fn check(kernel: &Kernel, when: &str) {
    if let Err(violation) = kernel.check() {
        panic!("conservation at {when}: {violation}");
    }
    let contents = kernel.contents.as_ref().expect("accesses are checked");
    if let Some(stale) = contents.first() {
        panic!("content at {when}: {stale}");
    }
}
