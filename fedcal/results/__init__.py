"""Reports: one self-contained HTML file that reads offline, and figures for papers.

A report is built from the files of a result folder alone, so `fedcal report DIR` gives what
saving the result gave. Everything in those files is untrusted text and escaped; the page loads
nothing, and its Content-Security-Policy forbids it to.
"""
