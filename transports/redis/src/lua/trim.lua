-- Trims a topic below every group's lowest unread or pending entry, at most about ARGV[3] entries.
local low
local groups = redis.pcall('XINFO', 'GROUPS', main)
if failed(groups) then return 0 end
for _, flat in ipairs(groups) do
  local g = map(flat)
  local id = g['last-delivered-id']
  if g['pending'] > 0 then id = redis.call('XPENDING', main, g['name'])[2] end
  if not low or later(low, id) then low = id end
end
if not low then return redis.call('XTRIM', main, 'MAXLEN', 0) end
return redis.call('XTRIM', main, 'MINID', '~', low, 'LIMIT', ARGV[3])
