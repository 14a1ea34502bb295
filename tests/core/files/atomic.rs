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
