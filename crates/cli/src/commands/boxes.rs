//! The options of a box.

use clap::Args;
use turbidite::Error;
use turbidite::expr::ExpressionError;
use turbidite::query::Query;

use crate::failure::Failure;

/// The options of a box.
#[derive(Debug, Args)]
pub(super) struct BoxOptions {
    /// Use only rows within a box: a range for each column, the low end included, the high end not
    #[arg(long = "box", value_name = "X=A:B,…", allow_hyphen_values = true)]
    sides: Option<String>,
    /// The period of each range of the box: a number, 'none', or nothing for the dataset's own
    #[arg(long = "period", value_name = "P,P,…", requires = "sides", allow_hyphen_values = true)]
    periods: Option<String>,
}

impl BoxOptions {
    /// Returns whether a box is stated.
    pub(super) fn is_stated(&self) -> bool {
        self.sides.is_some()
    }

    /// Restricts a query to the box.
    pub(super) fn restrict(&self, query: Query) -> Query {
        query.restricted(None, self.sides.clone(), self.periods.clone())
    }
}

/// Converts an error. If the box or the value of `option` caused it, the message names the option.
pub(super) fn wrong(error: Error, option: &str, expression: Option<&str>) -> Failure {
    match (error, expression) {
        (Error::Expression(error @ (ExpressionError::Box { .. } | ExpressionError::Period { .. })), _) => {
            Failure::Usage(format!("--{error}"))
        }
        // Rows are at fault, not a text.
        (Error::Expression(error @ (ExpressionError::Input(_) | ExpressionError::Computed { .. })), _) => {
            Failure::Usage(error.to_string())
        }
        // A long text would hide the reason, which names the place.
        (Error::Expression(error), Some(expression)) if expression.len() > 200 => {
            Failure::Usage(format!("{option}: {error}"))
        }
        (Error::Expression(error), Some(expression)) => Failure::Usage(format!("{option} '{expression}': {error}")),
        (other, _) => other.into(),
    }
}
