"""The commands of `tailtrain`, one module for each job. They import the rest of tailtrain when they run."""
