//! Advice on dataset errors, in terms of the configuration's settings.

use turbidite::{Error, Refusal};

/// Returns the error message, with a remedy if a setting of the configuration avoids the error.
pub(crate) fn in_words(error: &Error) -> String {
    let advice = match error.refusal() {
        Some(Refusal::Locked) => "if that process is certainly gone, break_lock = true takes over the lock",
        Some(Refusal::EpochExists) => "if_exists = \"replace\" rewrites it, if_exists = \"skip\" keeps it",
        Some(Refusal::EpochsExist) => {
            "to continue that run, set truncate_after = EPOCH, if_exists = \"skip\" or if_exists = \"replace\"; to start \
             a new run, set another out"
        }
        Some(Refusal::OtherSource) => {
            "set another out for these files, or any_source = true to store both in one dataset"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_as_the_configuration_spells_them() {
        let exists = Error::EpochExists { epoch: 5, path: "ds".into() };
        let words = in_words(&exists);
        assert!(words.starts_with("epoch 5 already exists in ds; if_exists = \"replace\" "), "{words}");
        let others = [
            (Error::EpochsExist { path: "ds".into(), count: 2, first: 5, last: 7 }, "truncate_after = "),
            (
                Error::OtherSource { path: "ds".into(), found: "a: b".into(), wanted: "a: c".into() },
                "any_source = true",
            ),
        ];
        for (error, setting) in others {
            assert!(in_words(&error).contains(setting), "{error}");
        }
        let missing = Error::EpochMissing { epoch: 5, path: "ds".into() };
        assert_eq!(in_words(&missing), missing.to_string());
    }
}
