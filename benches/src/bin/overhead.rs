//! Instructions and allocations a message, of the memory pipeline without decoding.
//!
//! It runs itself, under `valgrind --tool=callgrind` for instructions and plainly for allocations, each at two counts
//! of messages; the difference between the two holds neither start nor stop. From that of `fill + pool + settle` it
//! takes away that of `fill` and that of decoding alone.
//!
//! `overhead` prints the table; `overhead --check` also exits with 1 where a figure is above its mark.
#![allow(clippy::print_stdout, reason = "a program speaks to its reader")]

use std::{
    alloc::System,
    env, fs,
    process::{Command, ExitCode},
};

use postroom_benches::{
    pipeline::{Failed, Kind, drain, fill},
    record::{Earthquake, envelope},
};
use postroom_core::Body;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The two counts of messages.
const COUNTS: (u64, u64) = (4_000, 20_000);
/// Handler, batch, most instructions, most allocations a message.
const MARKS: [(&str, usize, f64, f64); 4] = [
    ("function", 1, f64::INFINITY, f64::INFINITY),
    ("function", 32, 3_000.0, 1.0),
    ("actor", 1, f64::INFINITY, f64::INFINITY),
    ("actor", 32, 5_500.0, 4.0),
];

fn main() -> Result<ExitCode, Failed> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => report(false),
        ["--check"] => report(true),
        ["child", what, batch, count] => child(what, batch.parse()?, count.parse()?),
        _ => Err("usage: overhead [--check]".into()),
    }
}

fn child(what: &str, batch: usize, count: u64) -> Result<ExitCode, Failed> {
    match what {
        "decode" => decode(count)?,
        "fill" => drop(actix::System::new().block_on(fill(count))?),
        "function" | "actor" => {
            let kind = if what == "actor" { Kind::Actor } else { Kind::Function };
            actix::System::new().block_on(async { drain(fill(count).await?, count, batch, kind).await })?;
        }
        _ => return Err(format!("no such child: {what}").into()),
    }
    let stats = ALLOCATOR.stats();
    println!("{}", stats.allocations + stats.reallocations);
    Ok(ExitCode::SUCCESS)
}

fn decode(count: u64) -> Result<(), Failed> {
    let (envelope, mut sum) = (envelope(), 0);
    for _ in 0..count {
        sum += Earthquake::decode(envelope.content_type.as_deref(), &envelope.body)?.significance;
    }
    if sum.unsigned_abs() == count * 436 { Ok(()) } else { Err("the record was not decoded".into()) }
}

/// Instructions (where valgrind is there) and allocations, a message.
#[derive(Clone, Copy, Debug)]
struct Cost {
    instructions: Option<f64>,
    allocations: f64,
}

impl Cost {
    fn without(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.zip(other.instructions).map(|(all, part)| all - part),
            allocations: self.allocations - other.allocations,
        }
    }
}

fn measure(what: &str, batch: usize, valgrind: bool) -> Result<Cost, Failed> {
    let (few, many) = COUNTS;
    let each = |few_cost: u64, many_cost: u64| (many_cost as f64 - few_cost as f64) / (many - few) as f64;
    let allocations = each(allocations(what, batch, few)?, allocations(what, batch, many)?);
    let instructions = match valgrind {
        true => Some(each(instructions(what, batch, few)?, instructions(what, batch, many)?)),
        false => None,
    };
    Ok(Cost { instructions, allocations })
}

fn run(command: &mut Command, what: &str, batch: usize, count: u64) -> Result<String, Failed> {
    let output = command.args(["child", what, &batch.to_string(), &count.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{what}, batch {batch}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn allocations(what: &str, batch: usize, count: u64) -> Result<u64, Failed> {
    Ok(run(&mut Command::new(env::current_exe()?), what, batch, count)?.trim().parse()?)
}

fn instructions(what: &str, batch: usize, count: u64) -> Result<u64, Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display())).arg(env::current_exe()?);
    run(&mut valgrind, what, batch, count)?;
    let text = fs::read_to_string(&out)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    Ok(total.ok_or("callgrind printed no total")?.trim().parse()?)
}

fn report(check: bool) -> Result<ExitCode, Failed> {
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !valgrind {
        println!("valgrind is not installed: allocations only");
        if check && env::var_os("CI").is_some() {
            return Err("CI needs valgrind for this check".into());
        }
    }
    let decode = measure("decode", 1, valgrind)?;
    let fill = measure("fill", 1, valgrind)?;
    let shown = |cost: Option<f64>| cost.map_or("–".to_owned(), |cost| format!("{cost:.0}"));
    println!("decoding alone: {} instructions, {:.2} allocations", shown(decode.instructions), decode.allocations);
    println!("| handler | batch | instructions | allocations |\n|---|---|---|---|");
    let mut above = false;
    for (what, batch, most_instructions, most_allocations) in MARKS {
        let cost = measure(what, batch, valgrind)?.without(fill).without(decode);
        println!("| {what} | {batch} | {} | {:.2} |", shown(cost.instructions), cost.allocations);
        above |= cost.instructions.is_some_and(|cost| cost > most_instructions) || cost.allocations > most_allocations;
    }
    if above {
        println!("a figure is above its mark");
    }
    Ok(if check && above { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
