//! Memory that several processes map, observed once.
//!
//! Such memory has a place of its own: its *object*, as if that were a process
//! whose addresses are the object's offsets. Processes *map* parts of it. What
//! is to be observed is asked of one of those who map it, another one each
//! turn, since each process's page table knows only of that process's accesses.
//! What comes back is told of the object.

use super::Span;
use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use std::collections::BTreeMap;

/// A part of an object in somebody's addresses.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    owner: OwnerId,
    first: u64,
    pages: u64,
    offset: u64,
}

/// Who maps what. See the module's essay.
#[derive(Debug, Default)]
pub struct Shared {
    objects: BTreeMap<OwnerId, Vec<Mapping>>,
    by_key: BTreeMap<u64, OwnerId>,
    /// The shared mappings of each process, ascending, with the object.
    of: BTreeMap<OwnerId, Vec<(Mapping, OwnerId)>>,
    next: u32,
}

/// Slow pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Where they are.
    pub run: Run,
    /// Which object they belong to, by a number of the caller's, and at which
    /// page of it, if others may map them too.
    pub object: Option<(u64, u64)>,
}

impl Shared {
    /// Process `owner` maps the shared ones of `memory`, ascending, and no
    /// others. The objects whose pages may be others now.
    pub fn set(&mut self, owner: OwnerId, memory: &[Memory]) -> Vec<OwnerId> {
        let mut changed: Vec<OwnerId> = Vec::new();
        for (_, object) in self.of.remove(&owner).unwrap_or_default() {
            changed.push(object);
            if let Some(mappers) = self.objects.get_mut(&object) {
                mappers.retain(|mapping| mapping.owner != owner);
            }
        }
        let mut own = Vec::new();
        for part in memory {
            let Some((key, offset)) = part.object else {
                continue;
            };
            let object = *self.by_key.entry(key).or_insert_with(|| {
                self.next += 1;
                OwnerId(u32::MAX - self.next)
            });
            let mapping = Mapping {
                owner,
                first: part.run.first.0,
                pages: part.run.pages,
                offset,
            };
            self.objects.entry(object).or_default().push(mapping);
            own.push((mapping, object));
            changed.push(object);
        }
        if !own.is_empty() {
            self.of.insert(owner, own);
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The pages of `object` that anybody maps, ascending; forgets an object
    /// that nobody does.
    pub fn runs(&mut self, object: OwnerId) -> Vec<Run> {
        let mappers = self.objects.get(&object).map_or(&[][..], |mappers| mappers);
        let mut parts: Vec<(u64, u64)> = mappers
            .iter()
            .map(|m| (m.offset, m.offset + m.pages))
            .collect();
        parts.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for (from, to) in parts {
            match runs.last_mut() {
                Some(last) if from <= last.first.0 + last.pages => {
                    last.pages = last.pages.max(to - last.first.0);
                }
                _ => runs.push(Run {
                    first: VirtualPage(from),
                    pages: to - from,
                }),
            }
        }
        if runs.is_empty() {
            self.objects.remove(&object);
            self.by_key.retain(|_, known| *known != object);
        }
        runs
    }

    /// Whether nothing is shared.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Gives `span` as the `turn`th of those who map it has it to `visit`, or as
    /// it is if it is nobody's but its owner's.
    pub fn outward(&self, span: Span, turn: u64, mut visit: impl FnMut(Span)) {
        let Some(mappers) = self.objects.get(&span.owner) else {
            return visit(span);
        };
        let (mut at, end) = (span.first.0, span.first.0 + span.pages);
        while at < end {
            let covers = |m: &&Mapping| m.offset <= at && at < m.offset + m.pages;
            let many = mappers.iter().filter(covers).count();
            if many == 0 {
                let next = mappers
                    .iter()
                    .map(|m| m.offset)
                    .filter(|offset| *offset > at)
                    .min();
                at = next.unwrap_or(end);
                continue;
            }
            let chosen = (turn % many as u64) as usize;
            let m = mappers
                .iter()
                .filter(covers)
                .nth(chosen)
                .expect("counted above");
            let to = end.min(m.offset + m.pages);
            visit(Span {
                owner: m.owner,
                first: VirtualPage(m.first + at - m.offset),
                pages: to - at,
            });
            at = to;
        }
    }

    /// Visits `span` as it is seen by each of those who map it.
    pub fn outward_all(&self, span: Span, mut visit: impl FnMut(Span)) {
        let Some(mappers) = self.objects.get(&span.owner) else {
            return visit(span);
        };
        let end = span.first.0 + span.pages;
        for m in mappers {
            let (from, to) = (span.first.0.max(m.offset), end.min(m.offset + m.pages));
            if from < to {
                visit(Span {
                    owner: m.owner,
                    first: VirtualPage(m.first + from - m.offset),
                    pages: to - from,
                });
            }
        }
    }

    /// Gives the parts of `span`, a process's, to `visit`, each with the place
    /// under which it is known: the object's, or its own.
    pub fn inward(&self, span: Span, mut visit: impl FnMut(Span)) {
        let Some(own) = self.of.get(&span.owner) else {
            return visit(span);
        };
        let (mut at, end) = (span.first.0, span.first.0 + span.pages);
        let mut next = own.partition_point(|(m, _)| m.first + m.pages <= at);
        while at < end {
            match own.get(next) {
                Some((m, object)) if m.first <= at => {
                    let to = end.min(m.first + m.pages);
                    visit(Span {
                        owner: *object,
                        first: VirtualPage(m.offset + at - m.first),
                        pages: to - at,
                    });
                    at = to;
                    next += 1;
                }
                later => {
                    let to = later.map_or(end, |(m, _)| end.min(m.first));
                    visit(Span {
                        owner: span.owner,
                        first: VirtualPage(at),
                        pages: to - at,
                    });
                    at = to;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OwnerId = OwnerId(0);
    const B: OwnerId = OwnerId(1);

    fn memory(first: u64, pages: u64, object: Option<(u64, u64)>) -> Memory {
        Memory {
            run: Run {
                first: VirtualPage(first),
                pages,
            },
            object,
        }
    }

    fn span(owner: OwnerId, first: u64, pages: u64) -> Span {
        Span {
            owner,
            first: VirtualPage(first),
            pages,
        }
    }

    fn outward(shared: &Shared, of: Span, turn: u64) -> Vec<Span> {
        let mut spans = Vec::new();
        shared.outward(of, turn, |span| spans.push(span));
        spans
    }

    fn inward(shared: &Shared, of: Span) -> Vec<Span> {
        let mut spans = Vec::new();
        shared.inward(of, |span| spans.push(span));
        spans
    }

    #[test]
    fn two_who_map_an_object_take_turns() {
        let mut shared = Shared::default();
        let object = shared.set(A, &[memory(0, 10, None), memory(1000, 100, Some((7, 0)))])[0];
        // B maps its second half, elsewhere.
        assert_eq!(shared.set(B, &[memory(5000, 50, Some((7, 50)))]), [object]);
        let runs = shared.runs(object);
        assert_eq!((runs.len(), runs[0].first.0, runs[0].pages), (1, 0, 100));
        assert_eq!(
            outward(&shared, span(object, 60, 10), 0),
            [span(A, 1060, 10)]
        );
        assert_eq!(
            outward(&shared, span(object, 60, 10), 1),
            [span(B, 5010, 10)]
        );
        // What either saw is told of the object.
        assert_eq!(inward(&shared, span(B, 5010, 1)), [span(object, 60, 1)]);
        assert_eq!(
            inward(&shared, span(A, 990, 20)),
            [span(A, 990, 10), span(object, 0, 10)]
        );
        assert_eq!(inward(&shared, span(A, 1095, 10))[1], span(A, 1100, 5));
        // What is private is as it was.
        assert_eq!(outward(&shared, span(A, 3, 4), 1), [span(A, 3, 4)]);
    }

    #[test]
    fn when_one_goes_the_other_takes_over() {
        let mut shared = Shared::default();
        let object = shared.set(A, &[memory(1000, 100, Some((7, 0)))])[0];
        shared.set(B, &[memory(5000, 50, Some((7, 50)))]);
        assert_eq!(shared.set(A, &[]), [object]);
        assert_eq!(shared.runs(object)[0].first, VirtualPage(50));
        assert_eq!(
            outward(&shared, span(object, 40, 20), 0),
            [span(B, 5000, 10)]
        );
        shared.set(B, &[]);
        assert!(shared.runs(object).is_empty() && shared.is_empty());
    }
}
