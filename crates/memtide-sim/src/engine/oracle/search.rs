//! The ellipsoid method: where in a box a function is largest that has no second hill.
//!
//! The function says its value at a point and a direction in which alone it may grow. Everything on the
//! other side is cut away, and what is left is put into the smallest ellipsoid around it; so the best point
//! is closed in on, however sharp the ridges are that lead there. What comes out is the largest value that
//! was seen.

/// The largest value found in the box between 0 and `size`; `tries` bounds the work.
pub fn largest(
    size: &[f64],
    tries: usize,
    value: &mut dyn FnMut(&[f64], &mut [f64]) -> f64,
) -> f64 {
    let n = size.len();
    let mut point: Vec<f64> = vec![0.0; n];
    let mut slope = vec![0.0; n];
    // Nothing is dear: often that is it already.
    let mut best = value(&point, &mut slope);
    if n == 0 {
        return best;
    }
    // In units of the box. One dimension needs another formula; a second that decides nothing saves it.
    let d = n.max(2);
    let mut centre = vec![0.5; d];
    let radius = d as f64 / 4.0;
    let mut shape: Vec<Vec<f64>> = (0..d)
        .map(|row| {
            (0..d)
                .map(|c| if c == row { radius } else { 0.0 })
                .collect()
        })
        .collect();
    let mut direction = vec![0.0; d];
    for _ in 0..tries {
        direction.fill(0.0);
        let outside = (0..d).find(|&at| !(0.0..=1.0).contains(&centre[at]));
        match outside {
            Some(at) => direction[at] = if centre[at] < 0.0 { 1.0 } else { -1.0 },
            None => {
                for at in 0..n {
                    point[at] = centre[at] * size[at];
                }
                best = best.max(value(&point, &mut slope));
                for at in 0..n {
                    direction[at] = slope[at] * size[at];
                }
            }
        }
        let times: Vec<f64> = shape
            .iter()
            .map(|row| row.iter().zip(&direction).map(|(a, b)| a * b).sum())
            .collect();
        let length: f64 = times.iter().zip(&direction).map(|(a, b)| a * b).sum();
        if !(length.is_finite() && length > 1e-200) {
            break;
        }
        let (d, root) = (d as f64, length.sqrt());
        let grow = d * d / (d * d - 1.0);
        for at in 0..centre.len() {
            centre[at] += times[at] / root / (d + 1.0);
        }
        for (row, own) in shape.iter_mut().zip(&times) {
            for (cell, other) in row.iter_mut().zip(&times) {
                *cell = grow * (*cell - 2.0 / (d + 1.0) * own * other / length);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharp_ridge_is_followed_to_its_top() {
        // 10 - 100 |x - 3 y| - |y - 1|: the top is 10 at (3, 1), on a ridge that no axis goes along.
        let mut value = |p: &[f64], slope: &mut [f64]| {
            let (across, along) = (p[0] - 3.0 * p[1], p[1] - 1.0);
            slope[0] = -100.0 * across.signum();
            slope[1] = 300.0 * across.signum() - along.signum();
            10.0 - 100.0 * across.abs() - along.abs()
        };
        let found = largest(&[50.0, 20.0], 400, &mut value);
        // The ellipsoid gets so thin that numbers end, a few parts in a hundred thousand below the top.
        assert!((found / 10.0 - 1.0).abs() < 1e-4, "{found}");
    }

    #[test]
    fn one_dimension_and_none() {
        let mut hill = |p: &[f64], slope: &mut [f64]| {
            slope[0] = -2.0 * (p[0] - 0.25);
            1.0 - (p[0] - 0.25).powi(2)
        };
        assert!((largest(&[4.0], 200, &mut hill) - 1.0).abs() < 1e-9);
        assert_eq!(largest(&[], 200, &mut |_, _| 7.0), 7.0);
    }
}
