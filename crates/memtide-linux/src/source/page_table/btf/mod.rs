//! Where the members of the running kernel's structures lie.
//!
//! `/sys/kernel/btf/vmlinux` describes every type of the kernel in a compact
//! binary form (BTF). A structure's layout changes with every version and every
//! configuration, so an offset that is not read from there is a guess.
//!
//! The file is a header, the types one after the other, and their names. A
//! type's id is its position, counted from 1; types differ in length, so one
//! pass notes where each begins (the only allocation) and where the wanted
//! structures are. Members are then found by path: `mm_struct.pgd`. A member
//! without a name is a structure or union whose members belong to the outer
//! one, as in C.

/// Why a type description is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Not BTF, or cut off.
    #[error("BTF: {what} at byte {at}; the file is damaged or of an unknown version")]
    Malformed {
        /// What was expected there.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// A kind that this reader does not know, so that it cannot find the next.
    #[error("BTF: type {id} is of the unknown kind {kind}; the kernel is newer than this program")]
    UnknownKind {
        /// The type's id.
        id: u32,
        /// Its kind.
        kind: u32,
    },
    /// The kernel has no such structure or member.
    #[error("BTF: the kernel has no {path}; its structures changed")]
    Missing {
        /// The path that was looked for.
        path: String,
    },
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the outermost structure.
    pub offset: u64,
    /// Its size in bytes; `None` for what has no size of its own.
    pub size: Option<u32>,
}

const MAGIC: u16 = 0xeb9f;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// A parsed type description over the bytes of the file.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where type `id` begins in `types`, at index `id - 1`.
    starts: Vec<u32>,
}

/// One type's fixed part.
#[derive(Clone, Copy, Debug)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    count: usize,
    bit_fields: bool,
    size_or_type: u32,
}

impl<'a> Btf<'a> {
    /// Notes where each type begins.
    pub fn parse(file: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        let header = |at| u32_at(file, at).ok_or(malformed("a header", at));
        if header(0)? & 0xffff != u32::from(MAGIC) {
            return Err(malformed("the magic number", 0));
        }
        let section = |offset_at, length_at| {
            let start = header(4)? as usize + header(offset_at)? as usize;
            file.get(start..start + header(length_at)? as usize)
                .ok_or(malformed("a whole section", start))
        };
        let mut btf = Btf {
            types: section(8, 12)?,
            strings: section(16, 20)?,
            // The kernel's types take about 24 bytes each.
            starts: Vec::with_capacity(file.len() / 24),
        };
        let mut at = 0;
        while at < btf.types.len() {
            let id = btf.starts.len() as u32 + 1;
            let t = btf.type_at(at)?;
            btf.starts.push(at as u32);
            at += 12 + trailer(id, t)?;
        }
        Ok(btf)
    }

    /// The member that `path` names: a structure and then members of members,
    /// with points between: `task_struct.tasks.next`.
    pub fn member(&self, path: &str) -> Result<Member, BtfError> {
        let missing = || BtfError::Missing {
            path: path.to_owned(),
        };
        let mut names = path.split('.');
        let outer = names.next().unwrap_or_default().as_bytes();
        let mut found = None;
        let mut holder = self.structure(outer)?.ok_or_else(missing)?;
        let mut offset = 0;
        for name in names {
            let (bits, id) = self.find(holder, name.as_bytes(), 0)?.ok_or_else(missing)?;
            offset += bits / 8;
            holder = self.bare(id)?.ok_or_else(missing)?;
            found = Some(holder);
        }
        let size = found.and_then(|t| self.size(t));
        Ok(Member { offset, size })
    }

    /// The first structure of that name that has members.
    fn structure(&self, name: &[u8]) -> Result<Option<Type>, BtfError> {
        for &start in &self.starts {
            let t = self.type_at(start as usize)?;
            if t.kind == STRUCT && t.count > 0 && self.is_named(t.name, name) {
                return Ok(Some(t));
            }
        }
        Ok(None)
    }

    /// The bit offset and type id of member `name` in `holder`, looking into
    /// members without a name.
    fn find(&self, holder: Type, name: &[u8], depth: u32) -> Result<Option<(u64, u32)>, BtfError> {
        // Deeper nesting than any structure has would be a loop in bad data.
        if !matches!(holder.kind, STRUCT | UNION) || depth > 16 {
            return Ok(None);
        }
        for index in 0..holder.count {
            let at = holder.at + 12 + index * 12;
            let field = |n| u32_at(self.types, at + n).ok_or(malformed("a member", at));
            let (member, id, place) = (field(0)?, field(4)?, field(8)?);
            let bits = u64::from(if holder.bit_fields {
                place & 0xff_ffff
            } else {
                place
            });
            if self.is_named(member, name) {
                return Ok(Some((bits, id)));
            }
            if self.is_named(member, b"")
                && let Some(inner) = self.bare(id)?
                && let Some((more, id)) = self.find(inner, name, depth + 1)?
            {
                return Ok(Some((bits + more, id)));
            }
        }
        Ok(None)
    }

    /// Type `id` without typedefs and qualifiers; `None` for void.
    fn bare(&self, mut id: u32) -> Result<Option<Type>, BtfError> {
        for _ in 0..64 {
            let Some(index) = id.checked_sub(1) else {
                return Ok(None);
            };
            let start = self.starts.get(index as usize);
            let t = self.type_at(*start.ok_or(malformed("a known type", id as usize))? as usize)?;
            match t.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = t.size_or_type,
                _ => return Ok(Some(t)),
            }
        }
        Err(malformed("an end of qualifiers", id as usize))
    }

    fn size(&self, t: Type) -> Option<u32> {
        match t.kind {
            PTR => Some(8),
            INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => Some(t.size_or_type),
            _ => None,
        }
    }

    fn type_at(&self, at: usize) -> Result<Type, BtfError> {
        let field = |n| u32_at(self.types, at + n).ok_or(malformed("a type", at));
        let info = field(4)?;
        Ok(Type {
            at,
            name: field(0)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            bit_fields: info >> 31 == 1,
            size_or_type: field(8)?,
        })
    }

    fn is_named(&self, offset: u32, name: &[u8]) -> bool {
        let tail = self.strings.get(offset as usize..).unwrap_or_default();
        tail.strip_prefix(name)
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Bytes between a type's fixed part and the next type.
fn trailer(id: u32, t: Type) -> Result<usize, BtfError> {
    Ok(match t.kind {
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        ENUM | FUNC_PROTO => 8 * t.count,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * t.count,
        kind => return Err(BtfError::UnknownKind { id, kind }),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

fn malformed(what: &'static str, at: usize) -> BtfError {
    BtfError::Malformed { what, at }
}

#[cfg(test)]
pub(super) mod tests;
