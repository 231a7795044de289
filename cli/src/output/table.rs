//! Tables for people.

/// Columns with a head, aligned by spaces; numbers to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these heads.
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(ToString::to_string).collect()] }
    }

    /// One row; the texts are escaped already.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Its lines, the head first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns).map(|c| cells(c).map(|cell| width(cell)).max().unwrap_or(0)).collect();
        let number = |text: &String| text == "-" || text.chars().all(|c| c.is_ascii_digit() || c == '~');
        let right: Vec<bool> = (0..columns).map(|c| self.rows.len() > 1 && cells(c).skip(1).all(number)).collect();
        let line = |row: &Vec<String>| {
            let padded = row.iter().zip(&widths).zip(&right).map(|((cell, width_), right)| {
                let pad = " ".repeat(width_.saturating_sub(width(cell)));
                if *right { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        self.rows.iter().map(line).collect()
    }
}

/// Columns on a terminal, near enough: wide characters count as two.
fn width(text: &str) -> usize {
    let wide = |c: char| matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{1f300}'..='\u{1faff}');
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["TRANSPORT", "WAITING"]);
        table.row(vec!["orders".into(), "7".into()]);
        table.row(vec!["日本".into(), "-".into()]);
        assert_eq!(table.lines(), ["TRANSPORT  WAITING", "orders           7", "日本             -"]);
    }
}
