//! The two scans of a trajectory request, and their result.

use std::borrow::Borrow;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType as ArrowType, Field, SchemaRef};
use serde::Serialize;

use crate::error::{Error, Result, UsageError};
use crate::query::analytics::tracks::ids::{IdGatherer, IdSet, ParticleId};
use crate::query::analytics::tracks::sorter::{Sorted, Sorter};
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Output, Query, ResolvedQuery, epoch_value, listed_twice, resolve_column, stored_column};
use crate::query::scan::column::array;
use crate::query::scan::epoch_scan::announce;
use crate::query::scan::pieces::Step;
use crate::query::scan::read::PackedRows;
use crate::query::use_path::Use;
use crate::schema::{Column, DataType, EPOCH_COLUMN, Schema};

/// Memory budget for sorting rows, in bytes.
const SORT_BYTES: usize = 64 << 20;

/// Size in bytes at which a batch ends, even if it has few rows.
const BATCH_BYTES: usize = 4 << 20;

/// A builder of a request for trajectories.
///
/// ```no_run
/// use turbidite::query::{Dataset, TrackRequest};
/// let dataset = Dataset::open("particles.tbd")?;
/// let mut tracks = dataset.tracks(&TrackRequest::new("energy > 100", 4000, "id"), &|_| {})?;
/// for batch in &mut tracks {
///     println!("{} rows", batch?.num_rows());
/// }
/// println!("{} particles, {} of them not always there", tracks.metrics().ids, tracks.metrics().incomplete_ids);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TrackRequest {
    particles: Particles,
    id: String,
    rows: Query,
    scratch: PathBuf,
    sort_bytes: usize,
}

/// The particles of a request.
#[derive(Debug, Clone)]
enum Particles {
    /// Those of the rows of a query at an epoch.
    Matching { of: Box<Query>, at: u64 },
    /// Those with these ids.
    Listed(Vec<ParticleId>),
}

impl TrackRequest {
    /// Requests the trajectories, through all epochs, of the particles that satisfy the expression `of` at epoch `at`.
    /// The column `id` identifies particles, or several columns, separated by commas. Their types are integer types or
    /// `fixed_bytes`.
    pub fn new(of: impl Into<String>, at: u64, id: impl Into<String>) -> Self {
        Self::of_query(Query::new().filter(of), at, id)
    }

    /// Requests the trajectories, through all epochs, of the particles whose rows at epoch `at` satisfy the expression
    /// of a query and lie within its box. The other settings of the query do not matter.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query, TrackRequest};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let corner = Query::new().within("x=0:10,z=0:5").filter("energy > 10");
    /// for batch in dataset.tracks(&TrackRequest::of_query(corner, 4000, "id"), &|_| {})? {
    ///     println!("{} rows", batch?.num_rows());
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn of_query(query: Query, at: u64, id: impl Into<String>) -> Self {
        Self::of_particles(Particles::Matching { of: Box::new(query), at }, id.into())
    }

    /// Requests the trajectories, through all epochs, of the particles with these ids. Repeated ids count once.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, TrackRequest};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// for batch in dataset.tracks(&TrackRequest::of_ids([17, 42], "id"), &|_| {})? {
    ///     println!("{} rows", batch?.num_rows());
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn of_ids<I>(ids: I, id: impl Into<String>) -> Self
    where
        I: IntoIterator,
        I::Item: Into<ParticleId>,
    {
        Self::of_particles(Particles::Listed(ids.into_iter().map(Into::into).collect()), id.into())
    }

    fn of_particles(particles: Particles, id: String) -> Self {
        Self { particles, id, rows: Query::new(), scratch: std::env::temp_dir(), sort_bytes: SORT_BYTES }
    }

    /// Sets which rows of the particles are returned: those of a query. Its epochs need not contain that at which
    /// particles are selected. The columns of the id and the epoch always come first. Its limit is that of the returned
    /// rows: the request still reads all rows, and its metrics include all of them. Threads, checks
    /// and [`Use::Scan`](crate::query::Use::Scan) are those of both scans. The default is all epochs and columns.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query, TrackRequest};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let rows = Query::new().epochs("2000..4000".parse::<turbidite::EpochSet>()?).columns(["energy"]);
    /// let tracks = dataset.tracks(&TrackRequest::new("energy > 100", 4000, "id").rows(rows), &|_| {})?;
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    #[must_use]
    pub fn rows(mut self, query: Query) -> Self {
        self.rows = query;
        self
    }

    /// Sets the folder for rows that exceed the memory budget. The default is the system's folder for temporary files.
    #[must_use]
    pub fn scratch_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.scratch = folder.into();
        self
    }

    #[cfg(test)]
    pub(in crate::query) fn sort_bytes(mut self, bytes: usize) -> Self {
        self.sort_bytes = bytes;
        self
    }

    /// Returns the query of the rows of the particles, for these columns.
    fn query(&self, columns: impl IntoIterator<Item = String>) -> Result<Query> {
        let rows = &self.rows;
        if rows.is_filtered() || rows.ordered || rows.order_by.is_some() || rows.piece.is_some() {
            let what =
                "are those of all epochs in the order of id and epoch; no predicate, box, order or piece applies";
            return Err(UsageError::Option { option: "rows", what: what.to_owned() }.into());
        }
        Ok(Query { limit: None, ..rows.clone().columns(columns) })
    }

    /// Returns the query of the particles that match at an epoch.
    fn condition<'a>(&self, of: &Query, columns: impl IntoIterator<Item = &'a String>) -> Query {
        let query = of.condition().columns(columns);
        // An index that the rows require need not be one of this condition.
        let access = if self.rows.access == Use::Scan { Use::Scan } else { Use::Automatic };
        Query { threads: self.rows.threads, check: self.rows.check, access, ..query }
    }
}

/// The progress of a trajectory request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrackProgress {
    /// Number of epochs that have been read.
    pub done_epochs: u64,
    /// Number of epochs to read in total.
    pub epochs: u64,
}

/// Metrics of a trajectory request. They do not depend on its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrackMetrics {
    /// Number of particles.
    pub ids: u64,
    /// Number of epochs.
    pub epochs: u64,
    /// Number of rows of the particles in these epochs.
    pub rows: u64,
    /// Number of particles without a row in at least one epoch.
    pub incomplete_ids: u64,
    /// Number of particles without a row in any epoch.
    pub absent_ids: u64,
    /// Number of pairs of a particle and an epoch that have no row.
    pub missing: u64,
    /// Number of rows beyond the first of the same particle and epoch.
    pub duplicates: u64,
    /// Metrics of the reads of both scans.
    pub read: QueryMetrics,
}

/// Rows sorted by id and epoch, as Arrow batches of [`Tracks::schema`]. The columns of the id come first, then the
/// epoch.
#[derive(Debug)]
pub struct Tracks {
    schema: SchemaRef,
    /// Types of a packed row's columns. The id comes first.
    types: Vec<DataType>,
    /// Number of columns of the id.
    id_columns: usize,
    /// The values of the column of the epoch.
    epochs: Vec<i64>,
    /// The place of the column of the epoch's time before that of the epoch is inserted, and its values.
    times: Option<(usize, Vec<f64>)>,
    rows: Option<Sorted>,
    batch_rows: usize,
    /// Number of rows that the limit still allows.
    open: u64,
    metrics: TrackMetrics,
}

/// Finds the particles and collects their rows.
pub(in crate::query) fn follow(
    dataset: &Arc<IndexedCatalog>,
    request: &TrackRequest,
    counters: Arc<Counters>,
    advance: &dyn Fn(TrackProgress),
) -> Result<Tracks> {
    let schema = &dataset.schema;
    let id = id_columns(schema, &request.id)?;
    let name = |column: &usize| schema.columns()[*column].name.clone();
    let others = other_columns(schema, &id, request.rows.columns.as_deref());
    let query = request.query(id.iter().map(name).chain(others))?;
    let epochs = dataset.select_epochs(&query.epochs)?;
    // Which of these row groups have such particles is not known yet.
    let in_epochs =
        || announce(dataset, epochs.iter().copied(), &counters, 1, &[], |manifest| manifest.row_groups.len());
    let ids = find_ids(dataset, request, &id, &counters, in_epochs)?;

    let mut resolved = ResolvedQuery::resolve(&query, schema)?;
    resolved.restrict(ids.predicate(schema, &id)?);
    // The time is that of the epoch, which each row names.
    let times = match resolved.output.iter().position(|output| *output == Output::Time) {
        Some(place) => Some((place, epochs.iter().map(|epoch| dataset.time(*epoch)).collect::<Result<Vec<f64>>>()?)),
        None => None,
    };
    let place = |output: &Output| match output {
        Output::Stored(slot) => Some((*slot, resolved.type_of(*output))),
        Output::Computed(slot) => Some((resolved.stored.len() + slot, resolved.type_of(*output))),
        Output::Epoch | Output::Time => None,
    };
    let (places, types): (Vec<usize>, Vec<DataType>) = resolved.output.iter().filter_map(place).unzip();
    let arrow = with_epoch(&resolved.arrow, id.len());
    let row_bytes = types.iter().map(|data_type| data_type.width()).sum();
    let sorter = Sorter::new(row_bytes, request.sort_bytes, request.scratch.clone());
    let mut gathering = SecondScan {
        ids: &ids,
        id_columns: id.len(),
        epochs: &epochs,
        types: &types,
        places,
        sorter,
        presence: Presence::new(ids.len()),
    };
    if ids.len() > 0 {
        let resolved = Arc::new(resolved);
        let of_threads = resolved.clone();
        let compute = move |rows: PackedRows| rows.with_computed(&of_threads);
        let scan = Scan::finishing(dataset.clone(), resolved, counters.clone(), epochs.clone(), compute);
        scan.skip_others()?;
        gathering.scan(scan, advance)?;
    } else if let Some(progress) = counters.counting() {
        progress.advance(progress.total() - progress.done());
    }
    let SecondScan { sorter, presence, .. } = gathering;
    let absent_ids = presence.ever.iter().filter(|ever| !**ever).count() as u64;
    let metrics = TrackMetrics {
        ids: ids.len() as u64,
        epochs: epochs.len() as u64,
        absent_ids,
        read: counters.metrics(),
        ..presence.metrics
    };
    let batch_rows = (BATCH_BYTES / usize::max(row_bytes, 1)).clamp(1, query.batch_rows);
    let open = request.rows.limit.unwrap_or(u64::MAX);
    let rows = Some(sorter.finish()?);
    let epochs = epochs.into_iter().map(epoch_value).collect::<Result<_>>()?;
    Ok(Tracks { schema: arrow, types, id_columns: id.len(), epochs, times, rows, batch_rows, open, metrics })
}

/// Returns the columns that identify particles: the one with this name, or those of a list with commas.
fn id_columns(schema: &Schema, name: &str) -> Result<Vec<usize>> {
    let names: Vec<String> = match schema.index_of(name) {
        Some(_) => vec![name.to_owned()],
        None => name.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let mut columns = Vec::with_capacity(names.len());
    for name in &names {
        let column = stored_column("id", name, "ids are values that are stored", schema)?;
        let column = column.ok_or_else(|| wrong_id(format!("'{EPOCH_COLUMN}' identifies timesteps, not particles")))?;
        if columns.contains(&column) {
            return Err(listed_twice(name));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn wrong_id(what: String) -> Error {
    UsageError::Option { option: "id", what }.into()
}

/// Returns the columns that follow the id and the epoch: names and expressions.
fn other_columns(schema: &Schema, id: &[usize], stated: Option<&[String]>) -> Vec<String> {
    let is_other = |text: &String| match resolve_column(text, schema) {
        Ok(column) => column.is_some_and(|column| !id.contains(&column)),
        Err(_) => true,
    };
    let all = || schema.columns().iter().map(|column| column.name.clone()).collect();
    let mut columns: Vec<String> = stated.map_or_else(all, <[String]>::to_vec);
    columns.retain(is_other);
    columns
}

/// Inserts the epoch after the columns of the id.
fn with_epoch(schema: &SchemaRef, id_columns: usize) -> SchemaRef {
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.insert(id_columns, Arc::new(Field::new(EPOCH_COLUMN, ArrowType::Int64, false)));
    Arc::new(arrow_schema::Schema::new(fields))
}

/// Returns the ids of the particles.
///
/// `announce` adds the row groups of the second scan to the total of the progress.
fn find_ids(
    dataset: &Arc<IndexedCatalog>,
    request: &TrackRequest,
    id: &[usize],
    counters: &Arc<Counters>,
    announce: impl FnOnce() -> Result<()>,
) -> Result<IdSet> {
    let stated: Vec<&Column> = id.iter().map(|index| &dataset.schema.columns()[*index]).collect();
    if let Some(Column { name, data_type, .. }) = stated.iter().find(|column| column.data_type.is_float()) {
        return Err(wrong_id(format!("'{name}' is {data_type}; ids must be integers or fixed_bytes")));
    }
    let types: Vec<DataType> = stated.iter().map(|column| column.data_type).collect();
    let gatherer = IdGatherer::new(&types).ok_or_else(|| Error::internal("an id is a float".to_owned()))?;
    match &request.particles {
        Particles::Matching { of, at } => {
            matching_ids(dataset, request, (of, *at), (&stated, gatherer), counters, announce)
        }
        Particles::Listed(ids) => {
            announce()?;
            listed_ids(ids, &stated, gatherer)
        }
    }
}

/// Returns the names of columns, separated by commas.
fn names(columns: &[&Column]) -> String {
    columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(",")
}

/// Returns the ids of a list.
fn listed_ids(ids: &[ParticleId], columns: &[&Column], mut gatherer: IdGatherer) -> Result<IdSet> {
    let most = gatherer.most();
    let too_many = || wrong_id(format!("more than {most} particles are listed; request fewer at a time"));
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type).collect();
    let mut packed = Vec::new();
    for id in ids {
        packed.clear();
        if !id.pack_tuple(&types, &mut packed) {
            let types: Vec<String> = types.iter().map(DataType::to_string).collect();
            let (names, types) = (names(columns), types.join(", "));
            return Err(wrong_id(format!("{id} is no possible value of '{names}', which is {types}")));
        }
        if !gatherer.add(&packed) {
            return Err(too_many());
        }
    }
    gatherer.finish().ok_or_else(too_many)
}

/// Returns the ids of the particles that satisfy an expression at an epoch.
fn matching_ids(
    dataset: &Arc<IndexedCatalog>,
    request: &TrackRequest,
    (of, at): (&Query, u64),
    (columns, mut gatherer): (&[&Column], IdGatherer),
    counters: &Arc<Counters>,
    announce: impl FnOnce() -> Result<()>,
) -> Result<IdSet> {
    let query = request.condition(of, columns.iter().map(|column| &column.name));
    let resolved = ResolvedQuery::resolve(&query, &dataset.schema)?;
    let epochs = dataset.select_epochs(&at.into())?;
    let most = gatherer.most();
    let stated = resolved.predicate.as_ref().map(ToString::to_string);
    let too_many = || {
        let of = stated.as_deref().unwrap_or("TRUE");
        wrong_id(format!(
            "more than {most} particles match '{of}' at epoch {at}; select fewer, or sort the output of a query by '{}'",
            names(columns)
        ))
    };
    let scan = Scan::in_any_order(dataset.clone(), Arc::new(resolved), counters.clone(), epochs, |rows| rows);
    let mut scan = scan.starting_over();
    scan.announce(1)?;
    announce()?;
    let widths: Vec<usize> = columns.iter().map(|column| column.data_type.width()).collect();
    let mut id = Vec::new();
    while let Some(step) = scan.next_step()? {
        let packed = match step {
            Step::Piece(packed) => packed,
            Step::Begin => continue,
            // All ids are of one epoch.
            Step::StartOver => {
                gatherer.clear();
                continue;
            }
        };
        let is_added = match packed.columns.as_slice() {
            [ids] => gatherer.add(ids),
            several => (0..packed.rows).all(|row| {
                pack_id(several, &widths, row, &mut id);
                gatherer.add(&id)
            }),
        };
        if !is_added {
            return Err(too_many());
        }
    }
    gatherer.finish().ok_or_else(too_many)
}

/// Replaces the content of `id` with the values of a row in some columns, packed.
fn pack_id(columns: &[impl Borrow<Buffer>], widths: &[usize], row: usize, id: &mut Vec<u8>) {
    id.clear();
    for (values, width) in columns.iter().zip(widths) {
        id.extend_from_slice(&values.borrow()[row * width..][..*width]);
    }
}

/// The state of the second scan, which reads the rows of the particles.
struct SecondScan<'a> {
    ids: &'a IdSet,
    /// Number of columns of an id, which come first.
    id_columns: usize,
    epochs: &'a [u64],
    types: &'a [DataType],
    /// The place of each column among those of a piece.
    places: Vec<usize>,
    sorter: Sorter,
    presence: Presence,
}

impl SecondScan<'_> {
    fn scan(&mut self, mut scan: Scan<Result<PackedRows>>, advance: &dyn Fn(TrackProgress)) -> Result<()> {
        let epochs = self.epochs.len();
        let mut current = 0;
        advance(TrackProgress { done_epochs: 0, epochs: epochs as u64 });
        while let Some(packed) = scan.next_piece()? {
            let packed = packed?;
            if packed.rows == 0 {
                continue;
            }
            // The scan returns rows epoch by epoch, in the order of the list.
            while self.epochs.get(current).is_some_and(|epoch| *epoch != packed.epoch) {
                self.presence.end_epoch();
                current += 1;
                advance(TrackProgress { done_epochs: current as u64, epochs: epochs as u64 });
            }
            self.take(&packed.columns, packed.rows, current)?;
        }
        for done in current..epochs {
            self.presence.end_epoch();
            advance(TrackProgress { done_epochs: done as u64 + 1, epochs: epochs as u64 });
        }
        Ok(())
    }

    /// Adds the rows of requested particles to the sorter.
    fn take(&mut self, columns: &[Buffer], rows: usize, epoch: usize) -> Result<()> {
        let widths: Vec<usize> = self.types.iter().map(|data_type| data_type.width()).collect();
        let columns: Vec<&Buffer> = self.places.iter().map(|place| &columns[*place]).collect();
        let mut id = Vec::new();
        for row in 0..rows {
            pack_id(&columns[..self.id_columns], &widths, row, &mut id);
            let Some(place) = self.ids.place(&mut id) else { continue };
            self.presence.see(place);
            // Both fit 32 bits, since the number of ids is bounded, and no folder has 2^32 epochs.
            let key = (place as u64) << 32 | epoch as u64;
            self.sorter.push(key, |packed| {
                for (column, width) in columns.iter().zip(&widths) {
                    packed.extend_from_slice(&column[row * width..][..*width]);
                }
            })?;
        }
        Ok(())
    }
}

/// The presence of particles: at the current epoch, and at every and any epoch so far.
struct Presence {
    seen: Vec<bool>,
    always: Vec<bool>,
    ever: Vec<bool>,
    metrics: TrackMetrics,
}

impl Presence {
    fn new(ids: usize) -> Self {
        Self {
            seen: vec![false; ids],
            always: vec![true; ids],
            ever: vec![false; ids],
            metrics: TrackMetrics::default(),
        }
    }

    /// Records a row of a particle.
    fn see(&mut self, place: usize) {
        self.metrics.rows += 1;
        self.metrics.duplicates += u64::from(self.seen[place]);
        self.seen[place] = true;
        self.ever[place] = true;
    }

    /// Ends the current epoch, and counts the particles that had no row.
    fn end_epoch(&mut self) {
        for (seen, always) in self.seen.iter_mut().zip(&mut self.always) {
            if !*seen {
                self.metrics.missing += 1;
                self.metrics.incomplete_ids += u64::from(*always);
                *always = false;
            }
            *seen = false;
        }
    }
}

impl Tracks {
    /// Returns the names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns the metrics of the request.
    pub fn metrics(&self) -> TrackMetrics {
        self.metrics
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let most = usize::try_from(self.open).unwrap_or(usize::MAX).min(self.batch_rows);
        let Some(sorted) = self.rows.as_mut().filter(|_| most > 0) else { return Ok(None) };
        let mut columns: Vec<Vec<u8>> = vec![Vec::new(); self.types.len()];
        let mut epochs: Vec<usize> = Vec::new();
        while epochs.len() < most {
            let taken = sorted.next(|key, row| {
                // The lower half of a key is the index of the epoch.
                epochs.push((key & u64::from(u32::MAX)) as usize);
                let mut rest = row;
                for (column, data_type) in columns.iter_mut().zip(&self.types) {
                    let (value, after) = rest.split_at(data_type.width());
                    column.extend_from_slice(value);
                    rest = after;
                }
            })?;
            if taken.is_none() {
                self.rows = None;
                break;
            }
        }
        if epochs.is_empty() {
            return Ok(None);
        }
        self.open -= epochs.len() as u64;
        let stored =
            self.types.iter().zip(columns).map(|(data_type, bytes)| array(*data_type, Buffer::from_vec(bytes)));
        let mut arrays: Vec<ArrayRef> = stored.collect();
        if let Some((place, times)) = &self.times {
            let of_rows = epochs.iter().map(|epoch| times[*epoch]);
            arrays.insert(*place, Arc::new(Float64Array::from_iter_values(of_rows)));
        }
        let labels = epochs.iter().map(|epoch| self.epochs[*epoch]);
        arrays.insert(self.id_columns, Arc::new(Int64Array::from_iter_values(labels)));
        let batch = RecordBatch::try_new(self.schema.clone(), arrays);
        batch.map(Some).map_err(|cause| Error::internal(format!("a batch does not fit its schema: {cause}")))
    }
}

impl Iterator for Tracks {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            self.rows = None;
        }
        next.transpose()
    }
}
