//! The hostile inputs, and the benign ones before and after them.

use turbidite::DataType;

/// SplitMix64, so that the inputs are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub(crate) fn lognormal(&mut self) -> f64 {
        (1.5 * self.normal()).exp()
    }
}

/// The keys of each rank, as little-endian bytes.
pub(crate) struct Input {
    pub(crate) data_type: DataType,
    pub(crate) ranks: Vec<Vec<u8>>,
}

impl Input {
    /// Distributes keys to ranks in contiguous slices.
    fn sliced<const WIDTH: usize>(data_type: DataType, size: Size, mut key: impl FnMut(usize) -> [u8; WIDTH]) -> Self {
        let share = size.records.div_ceil(size.ranks as usize).max(1);
        let slice = |rank: usize| (rank * share).min(size.records)..((rank + 1) * share).min(size.records);
        let ranks = (0..size.ranks as usize).map(|rank| slice(rank).flat_map(&mut key).collect()).collect();
        Self { data_type, ranks }
    }

    pub(crate) fn f32s(size: Size, mut key: impl FnMut(usize) -> f64) -> Self {
        Self::sliced(DataType::F32, size, |record| (key(record) as f32).to_le_bytes())
    }

    /// Returns lognormal keys of any type. Integers have few of them more than once.
    pub(crate) fn benign(data_type: DataType, size: Size, random: &mut Random) -> Self {
        let mut whole = || random.lognormal() * 1e6;
        match data_type {
            DataType::F32 => Self::f32s(size, |_| random.lognormal()),
            DataType::F64 => Self::sliced(data_type, size, |_| random.lognormal().to_le_bytes()),
            DataType::I32 => Self::sliced(data_type, size, |_| (whole() as i32).to_le_bytes()),
            DataType::U32 => Self::sliced(data_type, size, |_| (whole() as u32).to_le_bytes()),
            DataType::I64 => Self::sliced(data_type, size, |_| (whole() as i64).to_le_bytes()),
            DataType::U64 => Self::sliced(data_type, size, |_| (whole() as u64).to_le_bytes()),
            _ => unreachable!("no hostile input has keys of this type"),
        }
    }

    /// Distributes the ranks' keys to every `step`-th of `ranks`, beginning with rank 0. The other ranks have none.
    pub(crate) fn spread(self, ranks: u32, step: usize) -> Self {
        let mut spread = vec![Vec::new(); ranks as usize];
        for (rank, keys) in self.ranks.into_iter().enumerate() {
            spread[rank * step] = keys;
        }
        Self { ranks: spread, ..self }
    }

    pub(crate) fn rows(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum::<usize>() / self.data_type.width()
    }
}

/// The size of an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) records: usize,
    pub(crate) ranks: u32,
}

/// A hostile input.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) data_type: DataType,
    /// A small number of records that can be balanced.
    pub(crate) records: usize,
    make: fn(Size, &mut Random) -> Input,
}

impl Hostile {
    const fn new(name: &'static str, data_type: DataType, make: fn(Size, &mut Random) -> Input) -> Self {
        Self { name, data_type, records: 64_000, make }
    }

    pub(crate) fn epoch(&self, size: Size, random: &mut Random) -> Input {
        (self.make)(size, random)
    }

    pub(crate) fn benign(&self, size: Size, random: &mut Random) -> Input {
        Input::benign(self.data_type, size, random)
    }
}

/// Returns an input of independent keys.
macro_rules! independent {
    ($name:literal, $key:expr) => {
        Hostile::new($name, DataType::F32, |size, random| {
            let key: fn(&mut Random) -> f64 = $key;
            Input::f32s(size, |_| key(random))
        })
    };
}

pub(crate) static SCALES: [Hostile; 4] = [
    independent!("lognormal", Random::lognormal),
    independent!("lognormal x 1e-30", |random| random.lognormal() * 1e-30),
    independent!("lognormal x 1e6", |random| random.lognormal() * 1e6),
    independent!("negative lognormal", |random| -random.lognormal()),
];

fn partly_equal(share: f64, random: &mut Random) -> f64 {
    if random.unit() < share { 3.25 } else { random.lognormal() }
}

pub(crate) static EQUAL_KEYS: [Hostile; 5] = [
    independent!("50 % equal", |random| partly_equal(0.5, random)),
    independent!("90 % equal", |random| partly_equal(0.9, random)),
    independent!("100 % equal", |_| 3.25),
    independent!("zero or one", |random| f64::from(random.unit() < 0.3)),
    Hostile::new("integers 0 to 9", DataType::I32, |size, random| {
        Input::sliced(DataType::I32, size, |_| ((random.bits() % 10) as i32).to_le_bytes())
    }),
];

pub(crate) static SPECIAL_VALUES: [Hostile; 4] = [
    independent!("1 % NaN", |random| if random.unit() < 0.01 { f64::NAN } else { random.lognormal() }),
    independent!("50 % NaN", |random| if random.unit() < 0.5 { f64::NAN } else { random.lognormal() }),
    independent!("0.01 % infinite", |random| match random.unit() {
        chance if chance < 5e-5 => f64::INFINITY,
        chance if chance < 1e-4 => f64::NEG_INFINITY,
        _ => random.lognormal(),
    }),
    independent!("1 % NaN, infinite", |random| match random.unit() {
        chance if chance < 0.005 => f64::NAN,
        chance if chance < 0.01 => f64::INFINITY,
        _ => random.lognormal() + 5.0,
    }),
];

pub(crate) static UNEVEN_RANKS: [Hostile; 3] = [
    Hostile::new("one rank owns all", DataType::F32, |size, random| {
        Input::f32s(Size { ranks: 1, ..size }, |_| random.lognormal() * 30.0).spread(size.ranks, 1)
    }),
    Hostile::new("half of the ranks empty", DataType::F32, |size, random| {
        Input::f32s(Size { ranks: size.ranks / 2, ..size }, |_| random.lognormal()).spread(size.ranks, 2)
    }),
    // As in a domain that is decomposed along the key.
    Hostile::new("a range for each rank", DataType::F32, |size, random| {
        let share = size.records.div_ceil(size.ranks as usize);
        Input::f32s(size, |record| (record / share) as f64 + random.unit())
    }),
];

/// The first epoch of a mesh, nine tenths of whose cells are exactly zero. The front is elsewhere in each epoch.
pub(crate) fn blast_wave(size: Size, epoch: u32, random: &mut Random) -> Input {
    Input::f32s(size, |cell| {
        let position = cell as f64 / size.records as f64;
        let front = 0.1 + 0.17 * f64::from(epoch);
        if (position - front).abs() < 0.05 {
            (1.0 + random.unit()) * (-(position - front).abs() * 40.0).exp()
        } else {
            0.0
        }
    })
}

/// Keys that follow each other resemble each other, as in files of particles that are sorted by place.
pub(crate) fn grouped(size: Size, factor: f64, random: &mut Random) -> Input {
    let mut group = 0.0;
    Input::f32s(size, |record| {
        if record % 16 == 0 {
            group = random.lognormal() * factor;
        }
        group * (1.0 + 0.01 * random.normal())
    })
}

/// Past keys do not predict future keys here.
pub(crate) static SORTED: [Hostile; 2] = [
    Hostile::new("sorted", DataType::F32, |size, _| Input::f32s(size, |record| record as f64)),
    Hostile::new("reverse-sorted", DataType::F32, |size, _| Input::f32s(size, |record| (size.records - record) as f64)),
];

pub(crate) static NEIGHBOURS: [Hostile; 2] = [
    // The keys of the front move, and how far they move from one round to the next depends on the number of rounds,
    // which are at least 256 records of a rank apart.
    Hostile {
        records: 256_000,
        ..Hostile::new("blast wave", DataType::F32, |size, random| blast_wave(size, 0, random))
    },
    Hostile::new("groups", DataType::F32, |size, random| grouped(size, 1.0, random)),
];

/// Returns integers of the whole range, of which one in a thousand is at either end.
macro_rules! extremes {
    ($type:ty, $data_type:expr) => {
        Hostile::new(concat!(stringify!($type), " with extremes"), $data_type, |size, random| {
            Input::sliced($data_type, size, |_| {
                let key = match random.bits() % 1000 {
                    0 => <$type>::MIN,
                    1 => <$type>::MAX,
                    _ => random.bits() as $type,
                };
                key.to_le_bytes()
            })
        })
    };
}

pub(crate) static EXTREMES: [Hostile; 5] = [
    extremes!(i32, DataType::I32),
    extremes!(i64, DataType::I64),
    extremes!(u32, DataType::U32),
    // Nearly all of these keys are greater than 2^63 or at the ends of the range.
    Hostile::new("u64 beyond 2^63", DataType::U64, |size, random| {
        Input::sliced(DataType::U64, size, |_| {
            let key = if random.bits().is_multiple_of(1000) { u64::MAX } else { random.bits() | (1 << 63) };
            key.to_le_bytes()
        })
    }),
    Hostile::new("f64 with extremes", DataType::F64, |size, random| {
        Input::sliced(DataType::F64, size, |_| {
            let key = match random.bits() % 1000 {
                0 => f64::MIN,
                1 => f64::MAX,
                2 => f64::MIN_POSITIVE,
                3 => -0.0,
                _ => random.normal() * 10f64.powf(random.unit() * 600.0 - 300.0),
            };
            key.to_le_bytes()
        })
    }),
];

/// Returns all hostile inputs.
pub(crate) fn all() -> impl Iterator<Item = &'static Hostile> {
    let groups: [&[Hostile]; 7] =
        [&SCALES, &EQUAL_KEYS, &SPECIAL_VALUES, &UNEVEN_RANKS, &SORTED, &NEIGHBOURS, &EXTREMES];
    groups.into_iter().flatten()
}
