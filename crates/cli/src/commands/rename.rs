//! Names that a dataset has for the columns of a source.

use turbidite::{Column, EPOCH_COLUMN};

use crate::failure::Failure;
use crate::text::shell_quoted;

/// Returns a source's columns under the names that `renames`, texts `OLD=NEW`, give them.
pub(super) fn renamed(source: Vec<Column>, renames: &[String]) -> Result<Vec<Column>, Failure> {
    let mut columns = source.clone();
    for text in renames {
        let wrong = |what: String| Failure::Usage(format!("--rename: {what}"));
        let (old, new) = text.rsplit_once('=').ok_or_else(|| wrong(format!("'{text}' is not OLD=NEW")))?;
        let place = source.iter().position(|column| column.name == old).ok_or_else(|| {
            let names: Vec<&str> = source.iter().map(|column| column.name.as_str()).collect();
            wrong(format!("there is no column '{old}'; the columns are {}", names.join(", ")))
        })?;
        columns[place].name = new.trim().to_owned();
    }
    Ok(columns)
}

/// Returns the option that gives a column a valid name that none of the columns has.
pub(super) fn proposal(name: &str, columns: &[Column]) -> String {
    let plain = match name.replace('.', "_") {
        plain if plain.is_empty() => "column".to_owned(),
        plain if plain.eq_ignore_ascii_case(EPOCH_COLUMN) => format!("source_{plain}"),
        plain => plain,
    };
    let is_free = |name: &String| columns.iter().all(|column| !column.name.eq_ignore_ascii_case(name));
    let numbered = (2u32..).map(|number| format!("{plain}_{number}"));
    let free = [plain.clone()].into_iter().chain(numbered).find(is_free).unwrap_or_default();
    format!("--rename {}", shell_quoted(&format!("{name}={free}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turbidite::DataType;

    fn columns(names: &[&str]) -> Vec<Column> {
        names.iter().map(|name| Column::new(*name, DataType::F32)).collect()
    }

    #[test]
    fn columns_exchange_names() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let renamed = |texts_of: &[&str]| renamed(columns(&["a", "b", "c=d"]), &texts(texts_of));
        assert_eq!(renamed(&["a=b", "b=a", "c=d=c"]).unwrap(), columns(&["b", "a", "c"]));
        assert!(renamed(&["a"]).unwrap_err().to_string().contains("'a' is not OLD=NEW"));
        assert!(renamed(&["x=y"]).unwrap_err().to_string().contains("no column 'x'; the columns are a, b, c=d"));
    }

    #[test]
    fn proposed_names_are_free() {
        for (name, names, wanted) in [
            ("epoch", &["epoch", "x"][..], "--rename epoch=source_epoch"),
            ("Epoch", &["Epoch", "SOURCE_EPOCH"], "--rename Epoch=source_Epoch_2"),
            ("v.x", &["v.x", "v"], "--rename v.x=v_x"),
            ("v.x", &["v.x", "v_x", "v_x_2"], "--rename v.x=v_x_3"),
            ("X", &["x", "X"], "--rename X=X_2"),
            ("", &[""], "--rename =column"),
            ("v 0.5", &["v 0.5"], "--rename 'v 0.5=v 0_5'"),
        ] {
            assert_eq!(proposal(name, &columns(names)), wanted);
        }
    }
}
