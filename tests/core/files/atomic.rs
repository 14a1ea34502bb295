//! Saves: the old file or the new one, its permissions, links, and what a failing system leaves.

use burtorch_core::Error;
use burtorch_core::io::{Durability, save};

use super::Folder;

fn code(result: Result<(), Error>) -> i32 {
    match result {
        Err(Error::System { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_save_makes_or_replaces_a_file_and_leaves_no_other() {
    let folder = Folder::new("atomic");
    let path = folder.file("x");
    for (content, durability) in
        [(&b"one"[..], Durability::Durable), (b"", Durability::Cached), (b"three", Durability::Durable)]
    {
        save(&path, content, durability).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    assert_eq!(folder.names(), ["x"]);
    // Windows has a different number for a missing folder.
    const ENOENT: i32 = if cfg!(windows) { 3 } else { 2 };
    assert_eq!(code(save(&folder.file("no/where"), b"x", Durability::Durable)), ENOENT);
    assert_eq!(code(save(std::path::Path::new(""), b"x", Durability::Durable)), ENOENT);
}

#[cfg(unix)]
mod unix {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    #[test]
    fn permissions_stay_and_links_are_followed() {
        let folder = Folder::new("modes");
        let path = folder.file("x");
        save(&path, b"new", Durability::Cached).unwrap();
        let usual = folder.file("usual");
        fs::write(&usual, b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), mode(&usual));
        for wanted in [0o600, 0o640, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
            save(&path, b"again", Durability::Cached).unwrap();
            assert_eq!(mode(&path), wanted);
        }
        let link = folder.file("link");
        symlink("x", &link).unwrap();
        save(&link, b"through", Durability::Cached).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"through");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(folder.names(), ["link", "usual", "x"]);
    }

    #[test]
    fn devices_are_written_to_and_never_replaced() {
        save(Path::new("/dev/null"), b"gone", Durability::Durable).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        if Path::new("/dev/full").exists() {
            const ENOSPC: i32 = 28;
            assert_eq!(code(save(Path::new("/dev/full"), b"x", Durability::Durable)), ENOSPC);
        }
        let folder = Folder::new("folder-as-file");
        const EISDIR: i32 = 21;
        assert_eq!(code(save(&folder.0, b"x", Durability::Durable)), EISDIR);
        assert!(burtorch_core::io::read(&folder.0).is_err());
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::{self, OpenOptions};
    use std::os::windows::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn a_write_protected_file_is_kept() {
        let folder = Folder::new("protected");
        let path = folder.file("x");
        fs::write(&path, b"old").unwrap();
        let usual = fs::metadata(&path).unwrap().permissions();
        let mut protected = usual.clone();
        protected.set_readonly(true);
        fs::set_permissions(&path, protected).unwrap();
        const ERROR_ACCESS_DENIED: i32 = 5;
        assert_eq!(code(save(&path, b"new", Durability::Durable)), ERROR_ACCESS_DENIED);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        fs::set_permissions(&path, usual).unwrap();
        assert_eq!(folder.names(), ["x"]);
    }

    #[test]
    fn a_file_that_others_may_not_replace_is_kept() {
        let folder = Folder::new("shared");
        let path = folder.file("x");
        fs::write(&path, b"old").unwrap();
        // As the C library opens files, so Python's too: others may read and write, and not rename or delete.
        const FILE_SHARE_READ_WRITE: u32 = 3;
        let reader = OpenOptions::new().read(true).share_mode(FILE_SHARE_READ_WRITE).open(&path).unwrap();
        let refused = code(save(&path, b"new", Durability::Durable));
        assert!([5, 32].contains(&refused), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.names(), ["x"]);
        drop(reader);
        save(&path, b"new", Durability::Durable).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn long_paths_are_saved_to() {
        let folder = Folder::new("long");
        let deep = (0..4).fold(folder.0.clone(), |path, _| path.join("n".repeat(100)));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("x");
        save(&path, b"old", Durability::Durable).unwrap();
        save(&path, b"new", Durability::Durable).unwrap();
        assert_eq!(burtorch_core::io::read_exactly(&path, 3).unwrap(), b"new");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
    }
}
