"""One module for each revision, in a linear chain. A released revision is never edited."""
