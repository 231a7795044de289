-- ARGV[2]: q, g, t (topic) or s (store); ARGV[3]: create or verify; KEYS[7]: the topic's set of groups.
-- Answers D, N (missing) or the type of a key that is no stream.
local groups = KEYS[7]
local create = ARGV[3] == 'create'
for _, key in ipairs({ main, own, bell }) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= 'stream' then return found .. ' ' .. key end
end

local function join(key, from, read)
  local made
  if read then
    made = redis.pcall('XGROUP', 'CREATE', key, group, from, 'MKSTREAM', 'ENTRIESREAD', read)
  else
    made = redis.pcall('XGROUP', 'CREATE', key, group, from, 'MKSTREAM')
  end
  if failed(made) and not string.find(made.err, 'BUSYGROUP') then return error(made.err) end
end

local function empty(key)
  if redis.call('EXISTS', key) == 1 then return end
  redis.call('XGROUP', 'CREATE', key, '~', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', key, '~')
end

if kind == 't' or kind == 's' then
  if create then empty(main) end
  return redis.call('EXISTS', main) == 1 and 'D' or 'N'
end
if not create then
  local there = known(main) and (kind == 'q' or redis.call('SISMEMBER', groups, group) == 1)
  return there and 'D' or 'N'
end
join(bell, '$')
if kind == 'q' then
  join(main, '0')
  return 'D'
end
empty(main)
-- With what it has read so far the server's lag is exact.
local info = map(redis.call('XINFO', 'STREAM', main))
join(main, '$', info['entries-added'])
join(own, '0')
redis.call('SADD', groups, group)
return 'D'
