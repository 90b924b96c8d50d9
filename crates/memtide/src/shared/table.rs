//! How tables look.

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};

/// A table without lines: columns are aligned, and that is all. Plain text
/// if `styled` is false, so that a pipe or a log gets no escapes and no
/// wrapping.
pub fn table(header: &[(&str, CellAlignment)], styled: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if styled {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|(name, _)| match styled {
        true => Cell::new(name).add_attribute(Attribute::Bold),
        false => Cell::new(name),
    }));
    for (column, (_, alignment)) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2)).set_cell_alignment(*alignment);
    }
    table
}
