//! Shrinks a failing list: drops calls as long as the difference stays.

/// Returns the smallest part of `keep` that was found to fail still.
///
/// `fails` judges many candidates at once, because a run costs the boot of a kernel however many sequences it makes.
pub fn shrink(keep: Vec<usize>, mut fails: impl FnMut(&[Vec<usize>]) -> Vec<bool>) -> Vec<usize> {
    let mut keep = keep;
    let mut chunk = (keep.len() / 2).max(1);
    loop {
        let without: Vec<Vec<usize>> = (0..keep.len())
            .step_by(chunk)
            .map(|at| keep.iter().enumerate().filter(|(i, _)| !(at..at + chunk).contains(i)).map(|(_, &c)| c).collect())
            .collect();
        let verdicts = fails(&without);
        let droppable: Vec<usize> = (0..without.len()).filter(|&i| verdicts[i]).collect();
        if droppable.is_empty() {
            if chunk == 1 {
                return keep;
            }
            chunk /= 2;
            continue;
        }
        // Calls that can be dropped one by one can often be dropped together; otherwise only the first one goes.
        let together: Vec<usize> =
            keep.iter().enumerate().filter(|(i, _)| !droppable.contains(&(i / chunk))).map(|(_, &c)| c).collect();
        let half: Vec<usize> = keep
            .iter()
            .enumerate()
            .filter(|(i, _)| !droppable[..droppable.len().div_ceil(2)].contains(&(i / chunk)))
            .map(|(_, &c)| c)
            .collect();
        let more = fails(&[together.clone(), half.clone()]);
        keep = if more[0] {
            together
        } else if more[1] {
            half
        } else {
            without[droppable[0]].clone()
        };
        chunk = chunk.min((keep.len() / 2).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_the_failure_needs() {
        let needs = [3, 17, 30];
        let fails = |c: &[Vec<usize>]| c.iter().map(|k| needs.iter().all(|n| k.contains(n))).collect();
        assert_eq!(shrink((0..40).collect(), fails), needs);
    }

    #[test]
    fn copes_with_alternatives() {
        // Either 5 or 6 suffices, so both must not be dropped at once.
        let fails = |c: &[Vec<usize>]| c.iter().map(|k| k.contains(&5) || k.contains(&6)).collect();
        assert_eq!(shrink((0..10).collect(), fails).len(), 1);
    }
}
