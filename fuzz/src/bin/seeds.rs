//! Writes the seeds of the corpora: `seeds FOLDER` creates a file for each seed in FOLDER/<target>.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let root = std::env::args_os().nth(1).map(PathBuf::from).expect("the folder to write to");
    for (name, target, seeds) in turbidite_fuzz::ALL {
        let folder = root.join(name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds().iter().enumerate() {
            target(seed);
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}
