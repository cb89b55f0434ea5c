//! A bounded sample of the places of a rank's records, or of those of several ranks.

use super::table::DecodeError;
use crate::random::Random;
use crate::schema::MAX_AXES;

/// Number of points that a sample keeps of one block of records.
const POINTS_PER_BLOCK: usize = 16;

/// Maximum number of points of a rank's own sample.
const OWN_POINTS: usize = 128;

/// Maximum number of points of a merged sample: 12 KiB.
const MERGED_POINTS: usize = 512;

/// Bytes before the points of an encoded sample.
const HEADER_BYTES: usize = 8;

/// Bytes of an encoded point.
const POINT_BYTES: usize = MAX_AXES * size_of::<f64>();

/// A sample of places. Places with an infinite or a NaN coordinate are not sampled.
///
/// All records are about equally likely, but a rank's records have at most 128 points, however many there are: a sample
/// shows where records are, and not how many.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PointSample {
    /// Finite coordinates. Places in two dimensions have a third coordinate of 0.
    points: Vec<[f64; MAX_AXES]>,
    /// Number of records that the points are sampled from.
    records: u64,
}

// The coordinates are finite.
impl Eq for PointSample {}

impl PointSample {
    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the points.
    pub(super) fn points(&self) -> &[[f64; MAX_AXES]] {
        &self.points
    }

    /// Adds some of a block's `records` records. `place` returns a record's coordinates.
    pub(super) fn observe(&mut self, records: usize, random: &mut Random, place: impl Fn(usize) -> [f64; MAX_AXES]) {
        let step = records.div_ceil(POINTS_PER_BLOCK).max(1);
        for first in (0..records).step_by(step) {
            let stratum = step.min(records - first) as u64;
            self.records += stratum;
            let point = place(first + random.below(stratum) as usize);
            if point.iter().any(|coordinate| !coordinate.is_finite()) {
                continue;
            }
            if self.points.len() < OWN_POINTS {
                self.points.push(point);
            } else {
                // A point represents `step` records, as the earlier ones did.
                let slot = random.below(self.records / step as u64) as usize;
                if let Some(kept) = self.points.get_mut(slot) {
                    *kept = point;
                }
            }
        }
    }

    /// Returns a sample of the records of several samples.
    pub fn merge(samples: &[Self], random: &mut Random) -> Self {
        let records = samples.iter().map(|sample| sample.records).fold(0, u64::saturating_add);
        let all: usize = samples.iter().map(|sample| sample.points.len()).sum();
        if all <= MERGED_POINTS {
            return Self { points: samples.iter().flat_map(|sample| sample.points.clone()).collect(), records };
        }
        // Weighted sampling without replacement (Efraimidis and Spirakis, 2006): the smallest exponential variates win,
        // whose rate is the number of records that a point stands for.
        let mut drawn = Vec::with_capacity(all);
        for sample in samples {
            let weight = sample.records as f64 / sample.points.len().max(1) as f64;
            for point in &sample.points {
                drawn.push((-(1.0 - random.fraction()).ln() / weight, *point));
            }
        }
        drawn.select_nth_unstable_by(MERGED_POINTS, |(one, _), (other, _)| one.total_cmp(other));
        drawn.truncate(MERGED_POINTS);
        Self { points: drawn.into_iter().map(|(_, point)| point).collect(), records }
    }

    /// Appends the encoded sample to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.records.to_le_bytes());
        for coordinate in self.points.iter().flatten() {
            out.extend_from_slice(&coordinate.to_le_bytes());
        }
    }

    /// Decodes the output of [`PointSample::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] for other input.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let invalid = || DecodeError { what: "sample of places" };
        let (header, points) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(invalid)?;
        let (points, rest) = points.as_chunks::<POINT_BYTES>();
        let number = |raw: &[u8; 8]| f64::from_le_bytes(*raw);
        let points: Vec<[f64; MAX_AXES]> = points
            .iter()
            .map(|point| {
                let (coordinates, _) = point.as_chunks::<8>();
                std::array::from_fn(|axis| number(&coordinates[axis]))
            })
            .collect();
        let is_finite = points.iter().flatten().all(|coordinate| coordinate.is_finite());
        if !rest.is_empty() || points.len() > MERGED_POINTS || !is_finite {
            return Err(invalid());
        }
        Ok(Self { points, records: u64::from_le_bytes(*header) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(base: f64, blocks: usize, random: &mut Random) -> PointSample {
        let mut sample = PointSample::default();
        for block in 0..blocks {
            let places: Vec<f64> = (0..1024).map(|_| base + block as f64 + random.fraction()).collect();
            sample.observe(1024, random, |record| [places[record], 0.0, -places[record]]);
        }
        sample
    }

    #[test]
    fn all_records_are_equally_likely() {
        let mut random = Random::new(1);
        // Eleven ranks in one subtree, whose sample has four times the points of the other rank's. The mean of many
        // samples is that of all records.
        let mut mean = 0.0;
        for _ in 0..50 {
            let mut samples: Vec<PointSample> = (0..12).map(|rank| sample(f64::from(rank), 20, &mut random)).collect();
            let subtree = PointSample::merge(&samples.split_off(1), &mut random);
            assert_eq!(subtree.points.len(), MERGED_POINTS);
            samples.push(subtree);
            let merged = PointSample::merge(&samples, &mut random);
            assert!(merged.points.len() == MERGED_POINTS && merged.records == 240 << 10);
            mean += merged.points.iter().map(|point| point[0]).sum::<f64>() / MERGED_POINTS as f64 / 50.0;
        }
        let expected = 10.0 + 5.5;
        assert!((mean - expected).abs() < 0.3, "{mean} {expected}");
    }

    #[test]
    fn samples_survive_the_wire() {
        let mut random = Random::new(2);
        let mut found = sample(3.0, 20, &mut random);
        found.observe(5, &mut random, |record| [f64::INFINITY, f64::NAN, record as f64]);
        assert!(found.points.len() == OWN_POINTS && found.records == 20 * 1024 + 5);
        let mut bytes = Vec::new();
        found.encode(&mut bytes);
        assert_eq!(PointSample::decode(&bytes).as_ref(), Ok(&found));
        for end in (0..bytes.len()).filter(|end| end % 8 != 0) {
            assert!(PointSample::decode(&bytes[..end]).is_err());
        }
        bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(PointSample::decode(&bytes).is_err());
        assert!(PointSample::decode(&vec![0; HEADER_BYTES + POINT_BYTES * (MERGED_POINTS + 1)]).is_err());
    }
}
