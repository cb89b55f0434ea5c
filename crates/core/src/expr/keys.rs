//! The keys that a predicate allows: tuples of columns among which are those of all matching rows.

use std::collections::BTreeSet;

use crate::schema::{DataType, Value};

use super::plan::{ExpressionPlan, Source};
use super::prune::members_of;
use super::tuples::pack_integer;

/// A column of a key.
pub(super) type KeyColumn = (usize, DataType);

/// Packed keys. Lists are short, since long ones prune nothing.
type Keys = BTreeSet<Vec<u8>>;

/// Returns packed keys of `columns` among which are the keys of all matching rows. Returns `None` if the plan implies
/// no list of at most `most` keys.
pub(super) fn keys_of(plan: &ExpressionPlan, columns: &[KeyColumn], most: usize) -> Option<Keys> {
    let keys = match plan {
        ExpressionPlan::Tuple { columns: sources, members, inside: true } if members.len() <= most => {
            let place = |(index, _): &KeyColumn| {
                sources.iter().position(|source| matches!(source, Source::Column { index: of, .. } if of == index))
            };
            let places: Option<Vec<usize>> = columns.iter().map(place).collect();
            let places = places?;
            let project = |tuple| {
                let values: Vec<&[u8]> = members.values(tuple).map(|(_, value)| value).collect();
                places.iter().flat_map(|place| values[*place]).copied().collect()
            };
            members.tuples().map(project).collect()
        }
        ExpressionPlan::And(inner) => {
            let shortest = inner.iter().filter_map(|plan| keys_of(plan, columns, most)).min_by_key(Keys::len);
            match shortest {
                None if columns.len() > 1 => return product(plan, columns, most),
                shortest => shortest?,
            }
        }
        ExpressionPlan::Or(inner) => {
            let mut keys = Keys::new();
            for plan in inner {
                keys.extend(keys_of(plan, columns, most)?);
                if keys.len() > most {
                    return None;
                }
            }
            keys
        }
        _ => {
            let &[(index, data_type)] = columns else { return None };
            let members = members_of(plan, index).filter(|members| members.values().len() <= most)?;
            let pack = |value: &Value| {
                let mut packed = Vec::with_capacity(data_type.width());
                let Value::Int(value) = *value else { return None };
                pack_integer(data_type, value, &mut packed).then_some(packed)
            };
            members.values().iter().map(pack).collect::<Option<Keys>>()?
        }
    };
    Some(keys)
}

/// Returns all combinations of the values that a conjunction allows in each column.
fn product(plan: &ExpressionPlan, columns: &[KeyColumn], most: usize) -> Option<Keys> {
    let mut keys = Keys::from([Vec::new()]);
    for column in columns {
        let values = keys_of(plan, &[*column], most)?;
        if keys.len().saturating_mul(values.len()) > most {
            return None;
        }
        let combine = |key: &Vec<u8>| values.iter().map(|value| [key.as_slice(), value].concat()).collect::<Vec<_>>();
        keys = keys.iter().flat_map(combine).collect();
    }
    Some(keys)
}
