"""From reviewers' answers to the tables of a paper. The statistics need no Mephisto."""
