//! Messages between ranks.
//!
//! Control messages travel along the tree of ranks ([`super::tree`]). Data messages are sent directly to the receiver
//! or through representatives ([`super::topology`]). Both carry the *session*: the number of epochs this job has begun.
//! A control message of another session is stale and is dropped, since an epoch ends only after its last control
//! message has been sent.
//!
//! A batch on its only or last hop is a header and stored rows. On earlier hops, each row follows its destination rank
//! (u32), since a batch contains records for several receivers.

use super::round::Compared;
use super::wire::{FieldReader, FieldWriter, MessageError};
use crate::partition::{Frame, Pivots, PointSample};

/// The report of a rank or subtree that has sealed its parts: one payload per rank, or the first failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SealReport {
    /// Payloads in no particular order, each with its rank.
    Payloads(Vec<(u32, Vec<u8>)>),
    /// The failure of the lowest-numbered failed rank.
    Failed(Failure),
}

/// The rank and the cause of an epoch's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rank that failed first.
    pub rank: u32,
    /// That rank's error.
    pub cause: String,
}

/// The report of a rank or subtree in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The version that the round's table would have.
    pub(super) version: u32,
    /// Number of ranks that have appended records in this epoch.
    pub(super) contributors: u32,
    /// Number of records appended in this epoch, without those that a rank has kept for lack of credit.
    pub(super) seen: u64,
    /// Number of records appended under the table in force whose keys are outside the known range.
    pub(super) outside: u64,
    /// Whether a rank holds records back for a new table, or the application has requested one.
    pub(super) urgent: bool,
    /// The ranks' comparisons of their first keys with those of the last epoch.
    pub(super) compared: Compared,
    /// Smallest and largest key since the last table was planned. Empty without pivots.
    pub(super) range: (u64, u64),
    /// Number of records that have not left their rank. 0 without pivots.
    pub(super) backlog: u64,
    /// Number of records that each partition of the subtree has received in this epoch.
    pub(super) loads: Vec<(u32, u64)>,
    /// The encoded pivots of the keys since the last table was planned, if they are wanted.
    pub(super) pivots: Option<Vec<u8>>,
    /// Places of records, if a frame is wanted.
    pub(super) points: PointSample,
}

/// The table that an epoch begins with, from the last epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FirstTable {
    /// Number of records of a rank after which the first round may begin.
    pub(super) interval_rows: u64,
    /// Smallest and largest key of the last epoch.
    pub(super) range: (u64, u64),
    pub(super) table: Vec<u8>,
}

impl FirstTable {
    fn encode(&self, fields: FieldWriter) -> FieldWriter {
        fields.u64(self.interval_rows).u64(self.range.0).u64(self.range.1).block(&self.table)
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, MessageError> {
        let (interval_rows, range) = (fields.u64()?, (fields.u64()?, fields.u64()?));
        Ok(Self { interval_rows, range, table: fields.block()?.to_vec() })
    }
}

/// The keys of a subtree in an epoch that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    /// Number of ranks that have appended records.
    pub(super) contributors: u32,
    /// Smallest and largest key.
    pub(super) range: (u64, u64),
    /// Empty if the next epoch does not begin with this one's distribution.
    pub(super) pivots: Pivots,
    /// Places of records, if they are divided by place.
    pub(super) points: PointSample,
}

fn encode_points(points: &PointSample, fields: FieldWriter) -> FieldWriter {
    let mut encoded = Vec::new();
    points.encode(&mut encoded);
    fields.block(&encoded)
}

fn decode_points(fields: &mut FieldReader<'_>) -> Result<PointSample, MessageError> {
    PointSample::decode(fields.block()?).map_err(|_| MessageError::Field { field: "sample of places" })
}

fn decode_frame(fields: &mut FieldReader<'_>) -> Result<Frame, MessageError> {
    Frame::decode(fields.block()?).map_err(|_| MessageError::Field { field: "frame" })
}

impl Summary {
    fn encode(&self, fields: FieldWriter) -> FieldWriter {
        let mut pivots = Vec::new();
        self.pivots.encode(&mut pivots);
        let fields = fields.u32(self.contributors).u64(self.range.0).u64(self.range.1).block(&pivots);
        encode_points(&self.points, fields)
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, MessageError> {
        let (contributors, range) = (fields.u32()?, (fields.u64()?, fields.u64()?));
        let pivots = Pivots::decode(fields.block()?).map_err(|_| MessageError::Field { field: "pivots" })?;
        Ok(Self { contributors, range, pivots, points: decode_points(fields)? })
    }
}

impl Report {
    fn encode(&self, fields: FieldWriter) -> FieldWriter {
        let fields = fields.u32(self.version).u32(self.contributors).u64(self.seen).u64(self.outside);
        let fields = fields.u8(u8::from(self.urgent)).u64(self.compared.agreeing);
        let fields = fields
            .u64(self.compared.in_order)
            .u64(self.compared.differing)
            .u64(self.range.0)
            .u64(self.range.1)
            .u64(self.backlog);
        let loads = self.loads.iter();
        let fields =
            loads.fold(fields.count(self.loads.len()), |fields, (partition, rows)| fields.u32(*partition).u64(*rows));
        let fields = match &self.pivots {
            Some(pivots) => fields.u8(1).block(pivots),
            None => fields.u8(0),
        };
        encode_points(&self.points, fields)
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            version: fields.u32()?,
            contributors: fields.u32()?,
            seen: fields.u64()?,
            outside: fields.u64()?,
            urgent: fields.flag()?,
            compared: Compared { agreeing: fields.u64()?, in_order: fields.u64()?, differing: fields.u64()? },
            range: (fields.u64()?, fields.u64()?),
            backlog: fields.u64()?,
            loads: {
                let count = fields.u32()?;
                (0..count).map(|_| Ok((fields.u32()?, fields.u64()?))).collect::<Result<_, MessageError>>()?
            },
            pivots: if fields.flag()? { Some(fields.block()?.to_vec()) } else { None },
            points: decode_points(fields)?,
        })
    }
}

/// The purpose of a control message, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ControlPurpose {
    /// The start of a session on all ranks.
    Opening,
    /// The negotiation of a partition table.
    Negotiation,
    /// The count of deliveries and the outcome of the session.
    Ending,
}

impl ControlPurpose {
    /// Number of purposes. Every `purpose as usize` is less than this number.
    pub const COUNT: usize = 3;

    /// Returns the purpose of a message on [`Channel::Control`](super::Channel::Control).
    pub fn of(message: &[u8]) -> Self {
        match message.first() {
            Some(&(READY | GO)) => Self::Opening,
            Some(&(REQUEST | BEGIN | REPORT | KEEP | FRAME | TABLE)) => Self::Negotiation,
            _ => Self::Ending,
        }
    }
}

/// Control messages. "Up" messages are sent towards rank 0, "Down" messages away from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// Up: this subtree has begun the session.
    Ready,
    /// Down: all ranks have begun, so records may be sent. Carries rank 0's announcement, the number of partitions and
    /// the shift of their receivers (`Placement`), the frame that is divided by place, if it is known, and the table
    /// that the epoch begins with, if any.
    Go { announcement: Vec<u8>, placement: (u32, Option<u32>), frame: Option<Frame>, first: Option<FirstTable> },
    /// Up: a rank of the subtree requests a table newer than `version`. If the request is not urgent, rank 0 first asks
    /// for the loads, and may keep the table.
    Request { version: u32, urgent: bool },
    /// Down: send the loads, and the pivots for table `version` if wanted.
    Begin { version: u32, with_pivots: bool },
    /// Up: the report of a subtree in the round for table `version`.
    Report(Report),
    /// Down: the round ends without a table. The message contains the number of records of a rank after which the next
    /// round may be requested.
    Keep { version: u32, interval_rows: u64 },
    /// Down: the new table. The message also contains the number of records of a rank after which the next table may be
    /// requested (if tables adapt), and the smallest and largest key of the epoch so far.
    Table { interval_rows: u64, range: (u64, u64), table: Vec<u8> },
    /// Down: the frame that is divided by place. The round ends without a table.
    Frame(Frame),
    /// Up: every rank of the subtree has entered the end of the epoch. Their records number `originated`.
    Settled { originated: u64, summary: Summary },
    /// Down: requests the number of delivered records.
    Probe { round: u32 },
    /// Up: the reply to `Probe`.
    Delivered { round: u32, delivered: u64 },
    /// Down: every record has been delivered. `rows` is the number of records of all ranks if the next epoch begins
    /// with the keys of this one, and 0 if there are none.
    Closed { rows: u64 },
    /// Up: the report on this subtree's parts.
    SealReport(SealReport),
    /// Down: the epoch was committed, with rank 0's result, or has failed, with the cause.
    Outcome(Result<Vec<u8>, Failure>),
}

const READY: u8 = 1;
const GO: u8 = 2;
const REQUEST: u8 = 3;
const BEGIN: u8 = 4;
const REPORT: u8 = 5;
const TABLE: u8 = 6;
const SETTLED: u8 = 7;
const PROBE: u8 = 8;
const DELIVERED: u8 = 9;
const CLOSED: u8 = 10;
const SEALED: u8 = 11;
const SEALED_FAILED: u8 = 12;
const COMMITTED: u8 = 13;
const FAILED: u8 = 14;
const KEEP: u8 = 15;
const FRAME: u8 = 16;

impl Control {
    pub(super) fn encode(&self, session: u32) -> Vec<u8> {
        let head = |kind: u8| FieldWriter::default().u8(kind).u32(session);
        match self {
            Self::Ready => head(READY),
            Self::Go { announcement, placement: (partitions, shift), frame, first } => {
                let fields = head(GO).block(announcement).u32(*partitions);
                let fields = match shift {
                    None => fields.u8(0),
                    Some(shift) => fields.u8(1).u32(*shift),
                };
                let fields = match frame {
                    None => fields.u8(0),
                    Some(frame) => fields.u8(1).block(&frame.encode()),
                };
                match first {
                    None => fields.u8(0),
                    Some(first) => first.encode(fields.u8(1)),
                }
            }
            Self::Request { version, urgent } => head(REQUEST).u32(*version).u8(u8::from(*urgent)),
            Self::Begin { version, with_pivots } => head(BEGIN).u32(*version).u8(u8::from(*with_pivots)),
            Self::Report(report) => report.encode(head(REPORT)),
            Self::Keep { version, interval_rows } => head(KEEP).u32(*version).u64(*interval_rows),
            Self::Table { interval_rows, range, table } => {
                head(TABLE).u64(*interval_rows).u64(range.0).u64(range.1).block(table)
            }
            Self::Frame(frame) => head(FRAME).block(&frame.encode()),
            Self::Settled { originated, summary } => summary.encode(head(SETTLED).u64(*originated)),
            Self::Probe { round } => head(PROBE).u32(*round),
            Self::Delivered { round, delivered } => head(DELIVERED).u32(*round).u64(*delivered),
            Self::Closed { rows } => head(CLOSED).u64(*rows),
            Self::SealReport(SealReport::Payloads(payloads)) => payloads
                .iter()
                .fold(head(SEALED).count(payloads.len()), |fields, (rank, payload)| fields.u32(*rank).block(payload)),
            Self::SealReport(SealReport::Failed(failure)) => {
                head(SEALED_FAILED).u32(failure.rank).block(failure.cause.as_bytes())
            }
            Self::Outcome(Ok(payload)) => head(COMMITTED).block(payload),
            Self::Outcome(Err(failure)) => head(FAILED).u32(failure.rank).block(failure.cause.as_bytes()),
        }
        .finish()
    }

    /// Decodes a message and its session.
    pub(super) fn decode(bytes: &[u8]) -> Result<(u32, Self), MessageError> {
        let mut fields = FieldReader::new(bytes);
        let kind = fields.u8()?;
        let session = fields.u32()?;
        let message = match kind {
            READY => Self::Ready,
            GO => Self::Go {
                announcement: fields.block()?.to_vec(),
                placement: (fields.u32()?, if fields.flag()? { Some(fields.u32()?) } else { None }),
                frame: if fields.flag()? { Some(decode_frame(&mut fields)?) } else { None },
                first: if fields.flag()? { Some(FirstTable::decode(&mut fields)?) } else { None },
            },
            REQUEST => Self::Request { version: fields.u32()?, urgent: fields.flag()? },
            BEGIN => Self::Begin { version: fields.u32()?, with_pivots: fields.flag()? },
            REPORT => Self::Report(Report::decode(&mut fields)?),
            KEEP => Self::Keep { version: fields.u32()?, interval_rows: fields.u64()? },
            TABLE => Self::Table {
                interval_rows: fields.u64()?,
                range: (fields.u64()?, fields.u64()?),
                table: fields.block()?.to_vec(),
            },
            FRAME => Self::Frame(decode_frame(&mut fields)?),
            SETTLED => Self::Settled { originated: fields.u64()?, summary: Summary::decode(&mut fields)? },
            PROBE => Self::Probe { round: fields.u32()? },
            DELIVERED => Self::Delivered { round: fields.u32()?, delivered: fields.u64()? },
            CLOSED => Self::Closed { rows: fields.u64()? },
            SEALED => {
                let count = fields.u32()?;
                let mut payloads = Vec::new();
                for _ in 0..count {
                    payloads.push((fields.u32()?, fields.block()?.to_vec()));
                }
                Self::SealReport(SealReport::Payloads(payloads))
            }
            SEALED_FAILED => Self::SealReport(SealReport::Failed(decode_failure(&mut fields)?)),
            COMMITTED => Self::Outcome(Ok(fields.block()?.to_vec())),
            FAILED => Self::Outcome(Err(decode_failure(&mut fields)?)),
            kind => return Err(MessageError::Kind { kind }),
        };
        fields.end()?;
        Ok((session, message))
    }
}

/// Returns the name of a control message's kind, for traces.
pub fn control_name(message: &[u8]) -> &'static str {
    let flagged = |name, plain| {
        let message = Control::decode(message).map(|(_, message)| message);
        let has_flag =
            matches!(message, Ok(Control::Go { first: Some(_), .. } | Control::Request { urgent: true, .. }));
        if has_flag { name } else { plain }
    };
    match message.first().copied() {
        Some(READY) => "ready",
        Some(GO) => flagged("go with a table", "go"),
        Some(REQUEST) => flagged("urgent request", "request"),
        Some(BEGIN) => "begin",
        Some(REPORT) => "report",
        Some(KEEP) => "keep",
        Some(TABLE) => "table",
        Some(FRAME) => "frame",
        Some(SETTLED) => "settled",
        Some(PROBE) => "probe",
        Some(DELIVERED) => "delivered",
        Some(CLOSED) => "closed",
        Some(SEALED) => "sealed",
        Some(SEALED_FAILED) => "sealed: failed",
        Some(COMMITTED) => "committed",
        Some(FAILED) => "failed",
        _ => "unknown",
    }
}

/// Returns the number of partitions that a control message assigns to ranks, if it does, for traces.
pub fn assigned_partitions(message: &[u8]) -> Option<u32> {
    match Control::decode(message).ok()?.1 {
        Control::Go { placement: (partitions, _), .. } => Some(partitions),
        // The table's version precedes the number of its partitions.
        Control::Table { table, .. } => Some(u32::from_le_bytes(*table.get(4..)?.first_chunk()?)),
        _ => None,
    }
}

fn decode_failure(fields: &mut FieldReader<'_>) -> Result<Failure, MessageError> {
    Ok(Failure { rank: fields.u32()?, cause: String::from_utf8_lossy(fields.block()?).into_owned() })
}

/// Length of a data message's header in bytes.
pub(super) const DATA_HEADER_BYTES: usize = 20;

/// Bytes of the destination that precedes each row of a forwarded batch.
pub(super) const DESTINATION_BYTES: usize = 4;

/// The header of a batch, followed by its stored rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataHeader {
    pub(super) session: u32,
    /// The rank that filled the batch with its own and forwarded records.
    pub(super) origin: u32,
    /// The rank that receives the batch and stores or forwards its records.
    pub(super) destination: u32,
    /// Version of the newest table that routed any of the records. 0 for records routed without a table (NaN keys need
    /// none).
    pub(super) table_version: u32,
    pub(super) rows: u32,
}

impl DataHeader {
    pub(super) fn write(self, message: &mut [u8]) {
        let fields = [self.session, self.origin, self.destination, self.table_version, self.rows];
        for (slot, field) in message[..DATA_HEADER_BYTES].chunks_exact_mut(4).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
    }

    /// Decodes the header and returns it with the rows. Verifies that the rows have the header's row count, with
    /// `row_bytes` each.
    pub(super) fn read(message: &[u8], row_bytes: usize) -> Result<(Self, &[u8]), MessageError> {
        let mut fields = FieldReader::new(message);
        let header = Self {
            session: fields.u32()?,
            origin: fields.u32()?,
            destination: fields.u32()?,
            table_version: fields.u32()?,
            rows: fields.u32()?,
        };
        let rows = fields.rest();
        if (header.rows as usize).checked_mul(row_bytes) != Some(rows.len()) {
            return Err(MessageError::Field { field: "row count" });
        }
        Ok((header, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Control> {
        let failure = Failure { rank: 3, cause: "No space left on device".into() };
        vec![
            Control::Ready,
            Control::Go {
                announcement: vec![4; 16],
                placement: (4, Some(3)),
                frame: Some(Frame::around(&PointSample::default())),
                first: Some(FirstTable { interval_rows: 1 << 35, range: (3, 4), table: vec![8; 28] }),
            },
            Control::Request { version: 4, urgent: true },
            Control::Begin { version: 5, with_pivots: false },
            Control::Report(Report {
                version: 5,
                contributors: 9,
                seen: 12,
                outside: 3,
                urgent: true,
                compared: Compared { agreeing: 8, in_order: 7, differing: u64::MAX },
                range: (1, 2),
                backlog: 6,
                loads: vec![(3, 4), (5, 6)],
                pivots: Some(vec![1, 2, 3]),
                points: PointSample::default(),
            }),
            Control::Keep { version: 5, interval_rows: 1 << 33 },
            Control::Table { interval_rows: 1 << 40, range: (1, u64::MAX), table: vec![9; 40] },
            Control::Frame(Frame::around(&PointSample::default())),
            Control::Settled {
                originated: u64::MAX,
                summary: Summary {
                    contributors: 7,
                    range: (4, 1 << 60),
                    pivots: Pivots::default(),
                    points: PointSample::default(),
                },
            },
            Control::Probe { round: 8 },
            Control::Delivered { round: 8, delivered: 77 },
            Control::Closed { rows: 99 },
            Control::SealReport(SealReport::Payloads(vec![(0, vec![]), (7, vec![1; 9])])),
            Control::SealReport(SealReport::Failed(failure.clone())),
            Control::Outcome(Ok(b"words".to_vec())),
            Control::Outcome(Err(failure)),
        ]
    }

    #[test]
    fn control_messages_survive_the_wire() {
        for message in samples() {
            assert_eq!(Control::decode(&message.encode(12)), Ok((12, message)));
        }
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = samples().iter().map(|one| control_name(&one.encode(1))).collect();
        assert_eq!(names.len(), samples().len());
        assert!(!names.contains("unknown") && control_name(&[]) == "unknown");
    }

    #[test]
    fn cut_or_lengthened_messages_are_refused() {
        for message in samples() {
            let mut bytes = message.encode(1);
            for end in 0..bytes.len() {
                assert!(Control::decode(&bytes[..end]).is_err(), "{message:?} cut at {end}");
            }
            bytes.push(0);
            assert!(Control::decode(&bytes).is_err());
        }
        assert_eq!(Control::decode(&[99, 0, 0, 0, 0]), Err(MessageError::Kind { kind: 99 }));
    }

    #[test]
    fn a_batch_of_the_wrong_length_is_refused() {
        let mut message = vec![0; DATA_HEADER_BYTES + 24];
        let header = DataHeader { session: 1, origin: 2, destination: 3, table_version: 4, rows: 2 };
        header.write(&mut message);
        assert_eq!(DataHeader::read(&message, 12).map(|(read, rows)| (read, rows.len())), Ok((header, 24)));
        assert!(DataHeader::read(&message, 11).is_err());
        assert!(DataHeader::read(&message[..30], 12).is_err());
    }
}
