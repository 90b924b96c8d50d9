//! The bill of materials, in the format CycloneDX 1.5: which crate of which version is in the program.

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use super::parts::Part;

pub fn cyclone_dx(release: &Release, parts: &[Part]) -> Result<Vec<u8>> {
    let components: Vec<Value> = parts
        .iter()
        .filter(|part| part.name != "memtide")
        .map(component)
        .chain([
            json!({"type": "library", "bom-ref": "rust-std", "name": "std", "version": env!("CARGO_PKG_RUST_VERSION"),
                   "description": "Rust's standard library; the version is the lowest that builds memtide",
                   "licenses": [{"expression": "MIT OR Apache-2.0"}]}),
            json!({"type": "library", "bom-ref": "musl", "name": "musl",
                   "description": "the C library of the static binary, as it comes with Rust",
                   "licenses": [{"expression": "MIT"}]}),
        ])
        .collect();
    let dependencies: Vec<Value> = parts
        .iter()
        .map(|part| {
            let needs: Vec<String> = part.needs.iter().map(|at| name(&parts[*at])).collect();
            json!({"ref": name(part), "dependsOn": needs})
        })
        .collect();
    let program = parts
        .iter()
        .find(|part| part.name == "memtide")
        .map(component);
    let mut program = program.unwrap_or_default();
    program["type"] = json!("application");
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program, "properties": [
            {"name": "memtide:commit-time", "value": release.date.to_string()}]},
        "components": components,
        "dependencies": dependencies,
    });
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

/// A package URL; also what other entries call it.
fn name(part: &Part) -> String {
    format!("pkg:cargo/{}@{}", part.name, part.version)
}

fn component(part: &Part) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": name(part),
        "name": part.name,
        "version": part.version,
        "purl": name(part),
    });
    if let Some(licence) = &part.licence {
        // Older manifests write a slash where SPDX wants a word.
        let expression = licence.replace('/', " OR ").replace("  ", " ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(checksum) = &part.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_what_it_needs() {
        let part = |name: &str, needs: &[usize]| Part {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT/Apache-2.0".to_owned()),
            folder: "/".into(),
            ours: false,
            checksum: Some("00".to_owned()),
            needs: needs.to_vec(),
        };
        let release = Release {
            version: "1.2.3".to_owned(),
            date: 5,
            summary: String::new(),
            description: String::new(),
            before_removal: String::new(),
        };
        let parts = [part("libc", &[]), part("memtide", &[0])];
        let text = cyclone_dx(&release, &parts).unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(document["metadata"]["component"]["type"], "application");
        let libc = &document["components"][0];
        assert_eq!(libc["purl"], "pkg:cargo/libc@1.0.0");
        assert_eq!(libc["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            document["dependencies"][1]["dependsOn"][0],
            "pkg:cargo/libc@1.0.0"
        );
        assert_eq!(document["components"].as_array().unwrap().len(), 3);
    }
}
