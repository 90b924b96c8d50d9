//! The mappings that are kept, and what cutting out of them leaves.
//!
//! Programs unmap, move and protect any pages of any mappings with one call.
//! So what is kept is a list of pieces that do not overlap; a cut takes out
//! what lies within a range and leaves the rest, one piece becoming two if the
//! cut lies inside of it. A piece knows where in its file it begins, and that
//! is carried along.

use crate::decide::Lasting;
use std::ops::Range;

/// A stretch of addresses that shows a stretch of a file. `F` is what knows the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<F> {
    /// Addresses, whole pages.
    pub range: Range<usize>,
    /// Byte of the file at the first address.
    pub offset: u64,
    /// Whether the program asked for `MAP_PRIVATE`.
    pub private: bool,
    /// What it was advised of.
    pub advice: Lasting,
    /// The file.
    pub file: F,
}

impl<F: Clone> Piece<F> {
    /// The part of it within `range`, which must not be empty.
    fn part(&self, range: Range<usize>) -> Piece<F> {
        Piece {
            offset: self.offset + (range.start - self.range.start) as u64,
            range,
            private: self.private,
            advice: self.advice,
            file: self.file.clone(),
        }
    }

    /// The same with something else that knows the file.
    pub fn with<G>(&self, file: G) -> Piece<G> {
        Piece {
            range: self.range.clone(),
            offset: self.offset,
            private: self.private,
            advice: self.advice,
            file,
        }
    }

    /// The same elsewhere: where `mremap` put it, longer or shorter.
    pub fn moved(&self, range: Range<usize>) -> Piece<F> {
        Piece {
            range,
            ..self.clone()
        }
    }
}

/// Pieces that do not overlap.
#[derive(Debug)]
pub struct Pieces<F>(Vec<Piece<F>>);

impl<F: Clone> Pieces<F> {
    /// None.
    pub const fn new() -> Pieces<F> {
        Pieces(Vec::new())
    }

    /// All of them.
    pub fn all(&self) -> &[Piece<F>] {
        &self.0
    }

    /// Adds one, which must not overlap any.
    pub fn add(&mut self, piece: Piece<F>) {
        // Two that claim the same page would each put their file there.
        assert!(
            self.0
                .iter()
                .all(|other| other.range.end <= piece.range.start
                    || piece.range.end <= other.range.start)
        );
        self.0.push(piece);
    }

    /// Notes advice for what lies within `range`. Neighbours that then differ in
    /// nothing, their files the same by `same`, become one.
    pub fn advise(&mut self, range: &Range<usize>, advice: i32, same: impl Fn(&F, &F) -> bool) {
        for mut piece in self.cut(range) {
            piece.advice = piece.advice.and(advice);
            self.0.push(piece);
        }
        self.0.sort_unstable_by_key(|piece| piece.range.start);
        self.0.dedup_by(|next, piece| {
            let joins = piece.range.end == next.range.start
                && piece.offset + piece.range.len() as u64 == next.offset
                && (piece.private, piece.advice) == (next.private, next.advice)
                && same(&piece.file, &next.file);
            if joins {
                piece.range.end = next.range.end;
            }
            joins
        });
    }

    /// What lies within `range`, ascending.
    pub fn within(&self, range: &Range<usize>) -> Vec<Piece<F>> {
        let parts = self.0.iter().filter_map(|piece| {
            let from = piece.range.start.max(range.start);
            let to = piece.range.end.min(range.end);
            (from < to).then(|| piece.part(from..to))
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable_by_key(|piece| piece.range.start);
        parts
    }

    /// Takes out what lies within `range` and returns it.
    pub fn cut(&mut self, range: &Range<usize>) -> Vec<Piece<F>> {
        let mut out = Vec::new();
        let hit = |piece: &Piece<F>| piece.range.start < range.end && range.start < piece.range.end;
        if !self.0.iter().any(hit) {
            return out;
        }
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for piece in self.0.drain(..) {
            let whole = piece.range.clone();
            let from = whole.start.max(range.start);
            let to = whole.end.min(range.end);
            if from >= to {
                left.push(piece);
                continue;
            }
            out.push(piece.part(from..to));
            for rest in [whole.start..from, to..whole.end] {
                if !rest.is_empty() {
                    left.push(piece.part(rest));
                }
            }
        }
        self.0 = left;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(range: Range<usize>, offset: u64) -> Piece<char> {
        Piece {
            range,
            offset,
            private: false,
            advice: Lasting::default(),
            file: 'a',
        }
    }

    #[test]
    fn advice_parts_and_joins() {
        let mut pieces = Pieces::new();
        pieces.add(piece(100..200, 1000));
        let advise = |pieces: &mut Pieces<char>, range, advice| {
            pieces.advise(&range, advice, |a, b| a == b);
            pieces.all().len()
        };
        assert_eq!(advise(&mut pieces, 120..150, libc::MADV_RANDOM), 3);
        assert_eq!(advise(&mut pieces, 150..160, libc::MADV_RANDOM), 3);
        assert_eq!(pieces.all()[1].range, 120..160);
        assert_eq!(advise(&mut pieces, 0..500, libc::MADV_NORMAL), 1);
        assert_eq!(
            (pieces.all()[0].offset, pieces.all()[0].range.clone()),
            (1000, 100..200)
        );
    }

    #[test]
    fn a_cut_inside_leaves_two() {
        let mut pieces = Pieces::new();
        pieces.add(piece(100..200, 1000));
        // 30 bytes in: offset 1030; what is left begins 60 bytes in.
        assert_eq!(pieces.cut(&(130..160)), [piece(130..160, 1030)]);
        assert_eq!(pieces.all(), [piece(100..130, 1000), piece(160..200, 1060)]);
    }

    #[test]
    fn what_lies_within() {
        let mut pieces = Pieces::new();
        pieces.add(piece(500..600, 0));
        pieces.add(piece(100..200, 0));
        let within = [piece(150..200, 50), piece(500..510, 0)];
        assert_eq!(pieces.within(&(150..510)), within);
        assert_eq!(pieces.within(&(200..500)), []);
        assert_eq!(pieces.all().len(), 2);
    }

    #[test]
    fn a_cut_over_several_takes_parts_and_wholes() {
        let mut pieces = Pieces::new();
        pieces.add(piece(100..200, 0));
        pieces.add(piece(300..400, 0));
        pieces.add(piece(500..600, 0));
        assert_eq!(
            pieces.cut(&(150..550)),
            [piece(150..200, 50), piece(300..400, 0), piece(500..550, 0)]
        );
        assert_eq!(pieces.all(), [piece(100..150, 0), piece(550..600, 50)]);
        assert_eq!(pieces.cut(&(150..550)), []);
    }

    /// Page by page against a plain array: what each page shows.
    #[test]
    fn any_cuts_agree_with_an_array() {
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let mut model = [None; 64];
            let mut pieces = Pieces::new();
            for _ in 0..20 {
                let start = random(64);
                let range = start..(start + 1 + random(16)).min(64);
                let before: Vec<_> = model[range.clone()].iter().flatten().copied().collect();
                let mut cut: Vec<_> = pieces.cut(&range);
                cut.sort_by_key(|piece| piece.range.start);
                let pages = cut.iter().flat_map(|piece| {
                    piece
                        .range
                        .clone()
                        .map(|at| piece.offset + (at - piece.range.start) as u64)
                });
                assert_eq!(pages.collect::<Vec<_>>(), before);
                model[range.clone()].fill(None);
                if random(2) == 0 {
                    let offset = random(1000) as u64;
                    for (at, page) in range.clone().enumerate() {
                        model[page] = Some(offset + at as u64);
                    }
                    pieces.add(piece(range, offset));
                }
            }
        }
    }
}
