"""What a release of counts by site tells of how sites differ, and of the next one."""
