//! Numbers that follow from the label of an epoch, such as its physical time `epoch * 1.5e-15`.

use crate::schema::{Column, DataType, EPOCH_COLUMN};

use super::ExpressionError;
use super::calculation::{Calculation, Numbers};

/// An expression of `epoch` alone.
#[derive(Debug, Clone)]
pub struct EpochNumber(Calculation);

impl EpochNumber {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`ExpressionError`] for a text that is no number, or that names a column.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        // The label goes before a column of its name, which messages list.
        let known = [Column::new(EPOCH_COLUMN, DataType::I64)];
        Calculation::parse(text, 0, &known).map(Self)
    }

    /// Returns the number of an epoch.
    ///
    /// # Errors
    /// [`ExpressionError::Input`] for an integer operation without a result.
    pub fn value(&self, epoch: u64) -> Result<f64, ExpressionError> {
        let mut numbers = Numbers::Float(Vec::new());
        self.0.evaluate((epoch, 1), &[], &mut numbers)?;
        let whole = numbers.integers().first().map(|value| *value as f64);
        Ok(numbers.floats().first().copied().or(whole).unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_label() {
        let value = |text: &str| EpochNumber::parse(text).unwrap().value(4000);
        assert_eq!(value("epoch * 1.5e-15"), Ok(4000.0 * 1.5e-15));
        assert_eq!(value("EPOCH // 3"), Ok(1333.0));
        assert_eq!(value("if(epoch < 100, 0.5, 2)"), Ok(2.0));
        assert_eq!(value("1e-9"), Ok(1e-9));
        assert!(value("epoch // 0").unwrap_err().to_string().contains("epoch 4000"));
        let unknown = EpochNumber::parse("step * 2").unwrap_err().to_string();
        assert!(unknown.contains("'step'") && unknown.contains("epoch"), "{unknown}");
        EpochNumber::parse("epoch > 3").unwrap_err();
    }
}
