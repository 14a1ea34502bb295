//! Files: the checked container, saves that are whole or not at all, and the raw form.

mod arrays;
mod atomic;
mod container;
mod golden;
mod graph;
mod interrupts;
mod parameters;
mod program;
mod raw;
mod tokens;

use burtorch_core::io::HEADER_BYTES;

/// The file with modified payload and matching checksums, as a careless or hostile writer would produce it.
fn forged(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut payload = bytes[HEADER_BYTES..].to_vec();
    change(&mut payload);
    let crc = crc::Crc::<u64>::new(&crc::CRC_64_XZ);
    let mut header = bytes[..HEADER_BYTES].to_vec();
    header[40..48].copy_from_slice(&crc.checksum(&payload).to_le_bytes());
    let own = crc.checksum(&header[..56]).to_le_bytes();
    header[56..].copy_from_slice(&own);
    [header, payload].concat()
}

/// The file with some bytes changed, removed, inserted or truncated, depending on `seed`.
fn damage(file: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut file = file.to_vec();
    for _ in 0..1 + draw(4) {
        let at = draw(file.len());
        match draw(6) {
            0 => file.truncate(at.max(1)),
            1 => drop(file.drain(at..(at + draw(9)).min(file.len()))),
            2 => file.insert(at, draw(256) as u8),
            3 => file[at] ^= 1 << draw(8),
            4 => {
                let from = draw(file.len());
                let n = draw(17).min(file.len() - from).min(file.len() - at);
                file.copy_within(from..from + n, at);
            }
            _ => file[at] = draw(256) as u8,
        }
        if file.is_empty() {
            break;
        }
    }
    file
}

/// A new folder for one test, removed afterwards.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("burtorch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
