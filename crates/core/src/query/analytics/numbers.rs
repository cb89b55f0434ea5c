//! The numbers of an aggregate, whatever their source: exact, bounded, or estimated with standard errors.

/// The source of the numbers of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Bounds from manifests and bitmap indexes. No record is read.
    Bounds,
    /// Exact numbers. The rows that manifests and bitmap indexes leave in doubt are read.
    #[default]
    Exact,
    /// Estimates from the rows of a level of detail and above, one row in 8^level. No others are read.
    Level(u8),
}

/// A number: a count of rows, a sum, or a value. It is known, or lies within bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate<T> {
    /// Lower bound.
    pub least: T,
    /// Estimate.
    pub estimate: T,
    /// Upper bound.
    pub most: T,
    /// Standard error: 0 if the number is exact, `None` if unknown.
    pub error: Option<f64>,
}

impl<T: Copy + PartialEq> Estimate<T> {
    /// Returns a number that is known.
    pub fn exactly(number: T) -> Self {
        Self { least: number, estimate: number, most: number, error: Some(0.0) }
    }

    /// Returns a number that lies within bounds.
    pub fn within(least: T, estimate: T, most: T) -> Self {
        Self { least, estimate, most, error: (least == most).then_some(0.0) }
    }

    /// Returns whether the bounds are equal.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }
}

impl<T: Copy + PartialEq + Default> Default for Estimate<T> {
    fn default() -> Self {
        Self::exactly(T::default())
    }
}

impl Estimate<u64> {
    /// Returns the sum of two bounded counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let [least, estimate, most] =
            [(self.least, other.least), (self.estimate, other.estimate), (self.most, other.most)]
                .map(|(one, other)| one.saturating_add(other));
        Self::within(least, estimate, most)
    }
}

impl Estimate<f64> {
    /// Returns a sum with its error, if that is known. Unless it is 0, nothing bounds the sum.
    pub(super) fn of_sum(sum: f64, error: Option<f64>) -> Self {
        match error {
            Some(0.0) => Self::exactly(sum),
            _ => Self { least: f64::NEG_INFINITY, estimate: sum, most: f64::INFINITY, error },
        }
    }
}

/// Numbers of consecutive bins.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<T> {
    estimates: Vec<T>,
    /// The lower and the upper bounds, unless all numbers are known.
    bounds: Option<[Vec<T>; 2]>,
    /// The standard errors of estimates from a level, NaN where unknown.
    errors: Option<Vec<f64>>,
}

impl<T: Copy + PartialEq> Series<T> {
    /// Creates a series of numbers that are known.
    pub(super) fn exactly(numbers: Vec<T>) -> Self {
        Self { estimates: numbers, bounds: None, errors: None }
    }

    /// Creates a series with room for numbers that lie within bounds.
    pub(super) fn with_capacity(bins: usize) -> Self {
        let room = || Vec::with_capacity(bins);
        Self { estimates: room(), bounds: Some([room(), room()]), errors: None }
    }

    /// Creates a series of numbers that lie within bounds.
    pub(super) fn within(numbers: &[Estimate<T>]) -> Self {
        let mut series = Self::with_capacity(numbers.len());
        numbers.iter().for_each(|number| series.push(*number));
        series
    }

    /// Appends a number that lies within bounds.
    pub(super) fn push(&mut self, number: Estimate<T>) {
        self.estimates.push(number.estimate);
        if let Some([least, most]) = &mut self.bounds {
            least.push(number.least);
            most.push(number.most);
        }
    }

    /// Creates a series of numbers with standard errors.
    pub(super) fn estimated(numbers: &[Estimate<T>]) -> Self {
        let errors = numbers.iter().map(|number| number.error.unwrap_or(f64::NAN)).collect();
        Self { errors: Some(errors), ..Self::within(numbers) }
    }

    /// Returns the number of bins.
    pub fn len(&self) -> usize {
        self.estimates.len()
    }

    /// Returns whether there is no bin.
    pub fn is_empty(&self) -> bool {
        self.estimates.is_empty()
    }

    /// Returns the numbers in the order of the bins.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Estimate<T>> + '_ {
        (0..self.len()).map(|bin| self.at(bin))
    }

    /// Returns the number of a bin.
    ///
    /// # Panics
    /// If there is no such bin.
    pub fn at(&self, bin: usize) -> Estimate<T> {
        let estimate = self.estimates[bin];
        let [least, most] = self.bounds.as_ref().map_or([estimate; 2], |bounds| bounds.each_ref().map(|one| one[bin]));
        match (&self.errors, &self.bounds) {
            (Some(errors), _) => {
                Estimate { least, estimate, most, error: Some(errors[bin]).filter(|error| !error.is_nan()) }
            }
            (None, Some(_)) => Estimate::within(least, estimate, most),
            (None, None) => Estimate::exactly(estimate),
        }
    }

    /// Returns the estimates, or the numbers if they are known.
    pub fn estimates(&self) -> &[T] {
        &self.estimates
    }

    /// Returns the lower bounds.
    pub fn least(&self) -> &[T] {
        self.bounds.as_ref().map_or(&self.estimates, |bounds| &bounds[0])
    }

    /// Returns the upper bounds.
    pub fn most(&self) -> &[T] {
        self.bounds.as_ref().map_or(&self.estimates, |bounds| &bounds[1])
    }

    /// Returns the standard errors of estimates from a level of detail, NaN where unknown.
    pub fn errors(&self) -> Option<&[f64]> {
        self.errors.as_deref()
    }

    /// Removes and returns numbers from the beginning or the end.
    fn drain(&mut self, bins: std::ops::Range<usize>) -> Self {
        fn cut<N>(numbers: &mut Vec<N>, bins: std::ops::Range<usize>) -> Vec<N> {
            numbers.drain(bins).collect()
        }
        Self {
            estimates: cut(&mut self.estimates, bins.clone()),
            bounds: self.bounds.as_mut().map(|bounds| bounds.each_mut().map(|one| cut(one, bins.clone()))),
            errors: self.errors.as_mut().map(|errors| cut(errors, bins)),
        }
    }
}

/// Rows that are in no bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unbinned {
    /// A column of the histogram is NaN.
    Nan,
    /// The only column is minus infinity.
    NegativeInfinity,
    /// The value of the only column is finite and below the first edge.
    Below,
    /// The value of the only column is finite and above the last edge.
    Above,
    /// The only column is plus infinity.
    PositiveInfinity,
    /// One of two columns is infinite, and none is NaN.
    Infinite,
    /// The values of two columns are finite.
    Outside,
}

impl Unbinned {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::NegativeInfinity => "negative_infinity",
            Self::Below => "below",
            Self::Above => "above",
            Self::PositiveInfinity => "positive_infinity",
            Self::Infinite => "infinite",
            Self::Outside => "outside",
        }
    }
}

/// Numbers of rows by bins, or sums over them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Binned<T> {
    /// All rows that match.
    pub all: Estimate<T>,
    /// The bins. A bin contains its lower edge. The last bin also contains its upper edge. Of two columns: all bins of
    /// the second for the first bin of the first, then for the second, and so on.
    pub bins: Series<T>,
    /// The rows that are in no bin.
    pub unbinned: Vec<(Unbinned, Estimate<T>)>,
}

impl<T: Copy + PartialEq + Default> Binned<T> {
    /// Creates the numbers from those of all rows, and of consecutive places: `before` the bins, the bins, and `after`
    /// them.
    pub(super) fn new(all: Estimate<T>, mut places: Series<T>, (before, after): (&[Unbinned], &[Unbinned])) -> Self {
        let first = places.drain(0..before.len());
        let bins = places.len() - after.len();
        let last = places.drain(bins..places.len());
        let reasons = before.iter().chain(after).copied();
        let mut unbinned: Vec<_> = reasons.zip(first.iter().chain(last.iter())).collect();
        unbinned.sort_unstable_by_key(|(reason, _)| *reason);
        Self { all, bins: places, unbinned }
    }

    /// Returns the rows that are in no bin for one reason. Zero if the histogram does not distinguish this
    /// reason.
    pub fn at(&self, reason: Unbinned) -> Estimate<T> {
        let found = self.unbinned.iter().find(|(one, _)| *one == reason);
        found.map_or_else(Estimate::default, |(_, number)| *number)
    }
}
